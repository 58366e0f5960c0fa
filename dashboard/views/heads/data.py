"""The Heads page's own cached questions to tracer: scores at every period, and why a head looks where it looks.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading
from dashboard.loading.kept import OF_A_STEP
from dashboard.loading.prompt_tokens import strings
from tracer.measures.aliases import Head
from tracer.pictures.pattern import Cell
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

    from tracer.analysis.induction_by_period import ByPeriod
    from tracer.analysis.why import Pass
    from tracer.analysis.why_words import Reason

FEW = 2
"""Rows for each period of a model whose forward pass takes seconds."""
Tokens = tuple[int, ...]
"""Of the prompt."""
OWN = "own biases"
"""No part of the stream, so nothing that could be left unread."""
SOURCES = 8
"""Of either side; the rest is shown as one."""
TOP = 5
FRAMES = 60
"""Snapshots over which a cell is followed."""


@st.cache_data(max_entries=16, show_spinner="Repeating at every period …", hash_funcs=OF_A_STEP)
def by_period(run: Run, step: int) -> ByPeriod:
    """The induction score of every head of a snapshot, at every period."""
    from tracer.analysis.eval_sequences import SMALL
    from tracer.analysis.induction_by_period import ROWS, induction_by_period

    rows = ROWS if run.meta["n_params"] <= SMALL else FEW
    return induction_by_period(loading.model(run, step), bos=run.about.bos or 0, rows=rows)


@dataclass(frozen=True)
class Answer:
    """Why a head looks from one token at another, and what it moves."""

    score: xr.DataArray
    """`tracer.why`."""
    few: xr.DataArray
    """The same with the largest sources by name."""
    reason: Reason
    raised: list[tuple[str, float]]
    lowered: list[tuple[str, float]]
    """Tokens whose logits the cell moves most."""
    readers: Sequence[tuple[Head, str, float]]
    """Later heads, what of them (q, k or v), and the share of it that this cell wrote."""


@st.cache_resource(max_entries=2, show_spinner="Reading who wrote what …", hash_funcs=OF_A_STEP)
def _pass(run: Run, step: int, tokens: Tokens, off: tuple[Head, ...]) -> Pass:
    """z, q, k and v of every layer stay in memory: 150 MB for GPT-2 on 512 tokens."""
    import torch

    from tracer.ablate.planner import zeroed
    from tracer.analysis.why import read_pass

    model, row = loading.model(run, step), torch.tensor([tokens])
    with zeroed(model, row, off):
        return read_pass(model, row)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=OF_A_STEP)
def answer(run: Run, step: int, tokens: Tokens, head: Head, at: Cell, off: tuple[Head, ...] = ()) -> Answer:
    """With some heads `off`. ValueError where the stream of this model is no sum, with the reason."""
    from tracer.analysis import why
    from tracer.analysis.cell_moves import moves, readers
    from tracer.analysis.why_words import reason

    found = _pass(run, step, tokens, off)
    score = why.cell(found, *head, *at)
    moved = moves(found, *head, *at)
    order = moved["logits"].argsort().to_numpy()

    def said(ids: list[int]) -> list[tuple[str, float]]:
        return list(zip(strings(run, ids), moved["logits"].to_numpy()[ids].tolist(), strict=True))

    raised, lowered = said(order[::-1][:TOP].tolist()), said(order[:TOP].tolist())
    return Answer(score, why.largest(score, SOURCES), reason(found, score), raised, lowered, readers(moved)[:TOP])


@st.cache_data(max_entries=64, show_spinner="Running it without …", hash_funcs=OF_A_STEP)
def without(
    run: Run, step: int, tokens: Tokens, head: Head, query: int, source: str, off: tuple[Head, ...] = ()
) -> xr.Dataset:  # fmt: skip
    import torch

    from tracer.ablate.planner import zeroed
    from tracer.analysis.why_without import without as computed

    model, row = loading.model(run, step), torch.tensor([tokens])
    with zeroed(model, row, off):
        return computed(model, row, *head, query, [source])


@st.cache_data(max_entries=16, show_spinner="Reading the cell at every step …", hash_funcs=OF_A_STEP)
def over_training(
    run: Run, step: int, tokens: Tokens, head: Head, at: Cell, snapshots: tuple[int, ...]
) -> xr.DataArray:
    """Of the snapshots that there are by now."""
    import torch

    from tracer.analysis.why import why

    every = -(-len(snapshots) // FRAMES)
    steps = sorted({*snapshots[::-every], step})
    return why(run, torch.tensor([tokens]), *head, *at, steps=steps)
