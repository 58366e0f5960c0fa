"""Cached parts of logits on a text of one's own; the computing is `tracer.analysis.logit_attribution`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from dashboard.loading.norm_scales import Key, model_of


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
    import torch

    from tracer.analysis.logit_attribution import logit_attribution

    found = logit_attribution(model_of(key), torch.tensor([tokens])).isel(batch=0)
    arrays = (found[name].values for name in ("embed", "heads", "mlps", "biases", "logit"))
    return Parts(found.target.values.tolist(), *arrays)


@st.cache_data(max_entries=64, show_spinner=False)
def lens(key: Key, tokens: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """log p and rank of the next token if the model stopped before each layer and at its end, [layer1 pos]."""
    import torch

    from tracer.analysis.logit_attribution import logit_lens

    found = logit_lens(model_of(key), torch.tensor([tokens])).isel(batch=0)
    return found.log_p.values, found["rank"].values
