"""Cached readings of a prompt: what every head does with every token, and how much there was to read of each."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading.prompt_attention import Head, Sight
from tracer.pictures import token_view as reading
from tracer.store import Run, open_run


def head_exists(sight: Sight) -> np.ndarray:
    """[layer head]: the heads whose queries and keys both are the tokens of this prompt."""
    own = [sight.keys(layer) == sight.strings == sight.queries(layer) for layer in range(len(sight.sizes))]
    return ~np.isnan(sight.thumbs).all(axis=(2, 3)) & np.array(own)[:, None]


def plan(sight: Sight) -> reading.Plan:
    """How much of this prompt fits into one message."""
    exists = head_exists(sight)
    return reading.plan(len(sight.strings), *exists.shape, causal=all(sight.causal))


def norms(run: Run, sight: Sight) -> np.ndarray | None:
    """||v_k W_O|| [layer head key_pos]; None for a kept prompt and for models of others, whose W_O is not known."""
    directory, created, tokens = sight.key
    if not isinstance(tokens, tuple) or run.why_not("value_norms"):
        return None
    return _norms(str(directory), sight.step, tokens, str(created))


@st.cache_data(max_entries=32, show_spinner=False)
def _norms(directory: str, step: int, tokens: tuple[int, ...], created: str) -> np.ndarray:
    import torch

    from tracer.analysis.prompt_attention import read_norms
    from tracer.model import Transformer

    run = open_run(directory)
    model = loading.model(run, step)
    assert isinstance(model, Transformer)
    return read_norms(model, torch.tensor([tokens]))


def token_view(run: Run, sight: Sight, start: int, head: Head) -> bytes:
    """One message of the prompt from `start` on, packed for the token view."""
    made = plan(sight)
    layer = 0 if made.whole else head[0]
    weights = norms(run, sight)
    return _token_view((*sight.key, sight.step), start, made.n, layer, sight, weights)


@st.cache_data(max_entries=32, show_spinner=False)
def _token_view(
    key: tuple[object, ...], start: int, n: int, layer: int, _sight: Sight, _norms: np.ndarray | None
) -> bytes:  # fmt: skip
    page = slice(start, start + n)
    return reading.pack(
        lambda one, head: _sight.window(one, head, page, slice(None)), _sight.strings[page], there=head_exists(_sight),
        causal=_sight.causal, norms=_norms, start=start, layer=layer, step=_sight.step,
    )  # fmt: skip


def exact(run: Run, sight: Sight, head: Head, token: int) -> tuple[np.ndarray, np.ndarray | None]:
    """What one token attends to through one head [key_pos], and the same value-weighted; floats, as computed."""
    row = sight.window(*head, slice(token, token + 1), slice(None))
    weights = norms(run, sight)
    found = reading.readings(row, None if weights is None else weights[head])
    return found[0, 0], None if weights is None else found[2, 0]
