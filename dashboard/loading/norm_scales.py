"""Our models as the readings of weights take them: norms divide by what they divide by on average.

As in `loading`: keyed by run and step, and torch is only imported inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading
from dashboard.loading import ablation
from tracer.store import open_run

if TYPE_CHECKING:
    from torch import Tensor

    from tracer.model import Transformer

Key = tuple[str, str, int]
"""Directory, created, step."""


def ours(key: Key) -> Transformer:
    from tracer.model import Transformer

    model = loading.model(open_run(key[0]), key[2])
    assert isinstance(model, Transformer)
    return model


def reading(key: Key) -> Tensor:
    """Held-out text, or Probe R where none is left [batch pos]."""
    batches = ablation.batches(*key[:2])
    return batches.repeat.tokens if batches.text is None else batches.text[:, : ours(key).config.n_ctx]


@st.cache_data(max_entries=64, show_spinner=False)
def norm_scales(key: Key) -> dict[str, float]:
    """What each norm of our model divides by, the mean over what `reading` holds, by its name."""
    import torch

    from tracer.interventions.edits import recording

    with torch.no_grad(), recording("hook_scale") as seen:
        ours(key)(reading(key))
    return {name.removesuffix(".hook_scale"): float(found.mean()) for name, found in seen.items()}


def through(key: Key, name: str, vectors: Tensor) -> Tensor:
    """Vectors through a norm of our model, held at its mean scale; as they are where there is none."""
    from tracer.analysis.composition import held
    from tracer.model import Norm

    scale = norm_scales(key).get(name)
    if scale is None:
        return vectors
    norm = ours(key).get_submodule(name)
    assert isinstance(norm, Norm)
    return held(vectors, scale, None if norm.w is None else norm.w.detach(), centre=norm.centre)
