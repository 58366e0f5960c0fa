"""Cached looks at every head on one prompt: a text that the model reads now, or a prompt that the run kept.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading.kept import OF_A_PROMPT, OF_A_STEP, of_run
from tracer.measures.aliases import Head
from tracer.pictures.atlas import pack_thumbs
from tracer.pictures.overview import pack as pack_overview
from tracer.pictures.prompt_patterns import Pool, PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.analysis.prompt_attention import PromptAttention, Said

WHOLE = 256
"""Tokens up to which a pattern is drawn whole; a longer one is an overview and an exact window of this size at most."""
OVERVIEW = 512
"""Cells a side of the overview."""


Tokens = tuple[int, ...]


def of_text(
    run: Run, step: int, tokens: list[int], strings: list[str], off: tuple[Head, ...] = ()
) -> PromptPatterns:  # fmt: skip
    """Every head on a prompt that the model reads now, with some `off`: ValueError where these can't be."""
    found, _ = _read(run, step, tuple(tokens), off)
    return found.patterns(strings, list(run.about.layers), (*of_run(run), tuple(tokens)), step, off)


def said(run: Run, shown: PromptPatterns) -> Said | None:
    """What the model says in the same pass; None where it foretells no tokens, and of a kept prompt."""
    tokens = shown.key[2]
    return foretold(run, shown.step, tokens, shown.off) if isinstance(tokens, tuple) else None


def foretold(run: Run, step: int, tokens: Tokens, off: tuple[Head, ...]) -> Said | None:
    """The same of a text, in the pass that `of_text` reads: ValueError where heads can't be off."""
    return _read(run, step, tokens, off)[1]


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=OF_A_STEP)
def why_on(run: Run, step: int, off: tuple[Head, ...]) -> str:
    """Why heads of this model cannot be switched off; empty where they can. Costs a pass over two tokens."""
    import torch

    from tracer.ablate.planner import zeroed

    model, row = loading.model(run, step), torch.zeros(1, 2, dtype=torch.int64)
    try:
        with torch.no_grad(), zeroed(model, row, off):
            model(row)
    except ValueError as error:
        return str(error)
    return ""


def _read(run: Run, step: int, tokens: Tokens, off: tuple[Head, ...]) -> tuple[PromptAttention, Said | None]:
    return (_look if len(tokens) <= WHOLE else _long_look)(run, step, tokens, off)


def _compute(run: Run, step: int, tokens: Tokens, off: tuple[Head, ...]) -> tuple[PromptAttention, Said | None]:
    import torch

    from tracer.ablate.planner import zeroed
    from tracer.analysis import prompt_attention as reading

    model, row = loading.model(run, step), torch.tensor([tokens])
    with zeroed(model, row, off):
        found = reading.look(model, row)
    says = reading.foretold_by(found, row, run.about.d_vocab)
    nothing = np.broadcast_to(np.float32("nan"), found.logits.shape)  # 1,024 of GPT-2 are 206 MB
    return replace(found, logits=nothing), says


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=OF_A_STEP)
def _look(run: Run, step: int, tokens: Tokens, off: tuple[Head, ...]) -> tuple[PromptAttention, Said | None]:
    return _compute(run, step, tokens, off)


@st.cache_resource(max_entries=3, show_spinner="Reading the prompt …", hash_funcs=OF_A_STEP)
def _long_look(run: Run, step: int, tokens: Tokens, off: tuple[Head, ...]) -> tuple[PromptAttention, Said | None]:
    """q, k and v of every layer stay in memory: 113 MB for GPT-2 on 1,024 tokens, of which a page shows three: with
    all heads on, with some off, and what it is compared with."""
    return _compute(run, step, tokens, off)


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs=OF_A_PROMPT)
def atlas(shown: PromptPatterns, stamp: str, _measures: dict[str, np.ndarray]) -> bytes:
    """Every head as a thumbnail with its measures, packed for the atlas; `stamp` says which measures these are."""
    largest = max(q for q, _ in shown.sizes), max(k for _, k in shown.sizes)
    return pack_thumbs(shown.thumbs, _measures, n=largest, causal=shown.causal, layer_names=shown.names or None)


@st.cache_data(max_entries=32, show_spinner="Drawing the overview …", hash_funcs=OF_A_PROMPT)
def overview(shown: PromptPatterns, head: Head, pool: Pool, label: str) -> bytes:
    """One head's whole pattern in blocks, packed for the overview."""
    n_query, n_key = shown.sizes[head[0]]
    return pack_overview(
        shown.overview(*head, OVERVIEW, pool), n_query=n_query, n_key=n_key, factor_q=-(-n_query // OVERVIEW),
        factor_k=-(-n_key // OVERVIEW), label=label, causal=shown.causal[head[0]], pool=pool,
    )  # fmt: skip
