"""Cached readings of a prompt: what every head does with every token, and how much there was to read of each."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading.kept import OF_A_PROMPT, OF_A_STEP
from tracer.measures.aliases import Head
from tracer.pictures import token_view as reading
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run


def head_exists(shown: PromptPatterns) -> np.ndarray:
    """[layer head]: the heads whose queries and keys both are the tokens of this prompt."""
    own = [shown.keys(layer) == shown.strings == shown.queries(layer) for layer in range(len(shown.sizes))]
    return ~np.isnan(shown.thumbs).all(axis=(2, 3)) & np.array(own)[:, None]


def plan(shown: PromptPatterns) -> reading.Plan:
    """How much of this prompt fits into one message."""
    exists = head_exists(shown)
    return reading.plan(len(shown.strings), *exists.shape, causal=all(shown.causal))


def norms(run: Run, shown: PromptPatterns) -> np.ndarray | None:
    """||v_k W_O|| [layer head key_pos]; None for a kept prompt and for models of others, whose W_O is not known."""
    tokens = shown.key[2]
    if not isinstance(tokens, tuple) or run.why_not("value_norms"):
        return None
    return _norms(run, shown.step, tokens, shown.off)


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs=OF_A_STEP)
def _norms(run: Run, step: int, tokens: tuple[int, ...], off: tuple[Head, ...]) -> np.ndarray:
    import torch

    from tracer.ablate.planner import zeroed
    from tracer.analysis.prompt_attention import read_norms
    from tracer.model import Transformer

    model = loading.model(run, step)
    assert isinstance(model, Transformer)
    row = torch.tensor([tokens])
    with zeroed(model, row, off):
        return read_norms(model, row)


def token_view(run: Run, shown: PromptPatterns, start: int, head: Head) -> bytes:
    """One message of the prompt from `start` on, packed for the token view."""
    made = plan(shown)
    return _token_view(shown, start, made.n, 0 if made.whole else head[0], norms(run, shown))


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs=OF_A_PROMPT)
def _token_view(shown: PromptPatterns, start: int, n: int, layer: int, _norms: np.ndarray | None) -> bytes:
    page = slice(start, start + n)
    return reading.pack(
        lambda one, head: shown.window(one, head, page, slice(None)), shown.strings[page], there=head_exists(shown),
        causal=shown.causal, norms=_norms, start=start, layer=layer, step=shown.step,
    )  # fmt: skip


def exact(run: Run, shown: PromptPatterns, head: Head, token: int) -> tuple[np.ndarray, np.ndarray | None]:
    """What one token attends to through one head [key_pos], and the same value-weighted; floats, as computed."""
    row = shown.window(*head, slice(token, token + 1), slice(None))
    weights = norms(run, shown)
    found = reading.readings(row, None if weights is None else weights[head]).squeeze(1)  # which is of one query
    return found[0], None if weights is None else found[2]
