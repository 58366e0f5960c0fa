"""Cached answers to why a head looks where it looks; the computing is `tracer`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading
from dashboard.loading.prompt_attention import Head
from dashboard.loading.prompt_tokens import strings
from tracer.store import open_run

if TYPE_CHECKING:
    import xarray as xr

    from tracer.analysis.why import Pass
    from tracer.analysis.why_words import Reason

Place = tuple[str, str, int, tuple[int, ...]]
"""Run directory, job, step, tokens of the prompt."""
Cell = tuple[int, int]
OWN = "own biases"
"""No part of the stream, so nothing that could be left unread."""
SOURCES = 8
"""Of either side; the rest is shown as one."""
TOP = 5
FRAMES = 60
"""Snapshots over which a cell is followed."""


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


@st.cache_resource(max_entries=2, show_spinner="Reading who wrote what …")
def _pass(place: Place) -> Pass:
    """z, q, k and v of every layer stay in memory: 150 MB for GPT-2 on 512 tokens."""
    import torch

    from tracer.analysis.why import read_pass

    directory, _, step, tokens = place
    return read_pass(loading.model(open_run(directory), step), torch.tensor([tokens]))


@st.cache_data(max_entries=64, show_spinner=False)
def answer(place: Place, head: Head, at: Cell) -> Answer:
    """ValueError where the stream of this model is no sum, with the reason."""
    from tracer.analysis import why
    from tracer.analysis.cell_moves import moves, readers
    from tracer.analysis.why_words import reason

    found, run = _pass(place), open_run(place[0])
    score = why.cell(found, *head, *at)
    moved = moves(found, *head, *at)
    order = moved["logits"].argsort().to_numpy()

    def said(ids: list[int]) -> list[tuple[str, float]]:
        return list(zip(strings(run, ids), moved["logits"].to_numpy()[ids].tolist(), strict=True))

    raised, lowered = said(order[::-1][:TOP].tolist()), said(order[:TOP].tolist())
    return Answer(score, why.largest(score, SOURCES), reason(found, score), raised, lowered, readers(moved)[:TOP])


@st.cache_data(max_entries=64, show_spinner="Running it without …")
def without(place: Place, head: Head, query: int, source: str) -> xr.Dataset:
    import torch

    from tracer.analysis.why_without import without as computed

    directory, _, step, tokens = place
    return computed(loading.model(open_run(directory), step), torch.tensor([tokens]), *head, query, [source])


@st.cache_data(max_entries=16, show_spinner="Reading the cell at every step …")
def over_training(place: Place, head: Head, at: Cell, snapshots: tuple[int, ...]) -> xr.DataArray:
    """Of the snapshots that there are by now."""
    import torch

    from tracer.analysis.why import why

    run, (_, _, step, tokens) = open_run(place[0]), place
    every = -(-len(snapshots) // FRAMES)
    steps = sorted({*snapshots[::-every], step})
    return why(run, torch.tensor([tokens]), *head, *at, steps=steps)
