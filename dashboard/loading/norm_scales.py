"""Models as the readings of weights take them: norms divide by what they divide by on average.

As in `loading`: keyed by run and step, and torch is only imported inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading
from dashboard.loading import ablation
from dashboard.loading.kept import OF_A_STEP
from tracer.store import Run

if TYPE_CHECKING:
    from torch import Tensor

    from tracer.model.residual_stream import NormWeights


def reading(run: Run, step: int) -> Tensor:
    """Held-out text, or Probe R where none is left [batch pos]."""
    batches = ablation.batches(run)
    return batches.repeat.tokens if batches.text is None else batches.text[:, : loading.model(run, step).n_ctx]


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=OF_A_STEP)
def norms(run: Run, step: int) -> dict[str, tuple[NormWeights, float]]:
    """Each norm that heads and the unembedding read through: the mean of what it divides by over what `reading` holds.

    By its name in our models: blocks.<layer>.ln1, ln_final. A norm that comes after a layer (post) is here too.
    """
    import torch

    from tracer.interventions.edits import recording
    from tracer.model import Norm, Transformer
    from tracer.model.transformer import as_stream_norm

    model, tokens = loading.model(run, step), reading(run, step)
    if isinstance(model, Transformer):
        with torch.no_grad(), recording("hook_scale") as seen:
            model(tokens)
        scales = {name.removesuffix(".hook_scale"): float(found.mean()) for name, found in seen.items()}
        found = {}
        for name, scale in scales.items():
            norm = model.get_submodule(name)
            assert isinstance(norm, Norm)
            found[name] = as_stream_norm(norm), scale
        return found
    stream = model.residual_stream(tokens)
    read = [(f"blocks.{i}.ln1", one.weights.norm, one.resid_pre) for i, one in enumerate(stream.layers)]
    read.append(("ln_final", stream.end.norm, stream.final))
    return {name: (norm, float(norm.scale(x).mean())) for name, norm, x in read if norm is not None}


def through(run: Run, step: int, name: str, vectors: Tensor) -> Tensor:
    """Vectors through a norm, held at its mean scale; as they are where there is none."""
    import torch

    if (found := norms(run, step).get(name)) is None:
        return vectors
    norm, scale = found
    return norm.linear(vectors, torch.tensor(scale))
