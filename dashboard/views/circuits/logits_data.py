"""Cached parts of logits on a text of one's own; the computing is `tracer.analysis.logit_attribution`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard.loading.norm_scales import Key, ours

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Parts:
    """What each part of the model adds to the logit of the next token, above the mean logit, at every position."""

    targets: list[int]
    """The token that follows; after the last one, the token that the model thinks likeliest."""
    embed: np.ndarray
    """[pos], as `biases` and `logit`"""
    heads: np.ndarray
    """[layer head pos]"""
    mlps: np.ndarray
    """[layer pos]"""
    biases: np.ndarray
    logit: np.ndarray


@st.cache_data(max_entries=64, show_spinner=False)
def parts_of_logit(key: Key, tokens: tuple[int, ...]) -> Parts:
    """ValueError where the logit is no sum of parts."""
    from tracer.analysis.logit_attribution import logit_attribution

    model, (read, targets) = ours(key), _read(key, tokens)
    found = logit_attribution(model, read, targets)
    arrays = (x.numpy()[..., 0, :] for x in (found.embed, found.heads, found.mlps, found.biases, found.logit))
    return Parts(targets[0].tolist(), *arrays)


@st.cache_data(max_entries=64, show_spinner=False)
def lens(key: Key, tokens: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """log p and rank of the next token if the model stopped before each layer and at its end, [layer1 pos]."""
    from tracer.analysis.logit_attribution import logit_lens

    log_p, ranks = logit_lens(ours(key), *_read(key, tokens))
    return log_p[:, 0].numpy(), ranks[:, 0].numpy()


def _read(key: Key, tokens: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The prompt, and what follows each of its tokens [1 pos]."""
    import torch

    read = torch.tensor([tokens])
    with torch.no_grad():
        likeliest = ours(key)(read)[:, -1:].argmax(-1)
    return read, torch.cat([read[:, 1:], likeliest], 1)
