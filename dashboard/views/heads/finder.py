"""The head finder: a line such as "induction > 0.5" or "L1H2" and the heads that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import head_scores
from dashboard.shared import choosers
from tracer.analysis import head_query
from tracer.analysis.head_query import HeadMatches
from tracer.measures import in_trace
from tracer.measures.aliases import Head
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr
    from streamlit.delta_generator import DeltaGenerator

LONGEST = 8 * 1024
"""Characters: 1,024 heads, each by its name."""
CHIPS = 8
"""Heads that are named below the box; the atlas shows all that fit."""


def choose_heads(run: Run, place: DeltaGenerator) -> None:
    """A text box at `place`."""
    place.text_input(
        "Find heads", placeholder="induction > 0.5, or L1H2", help=head_query.HELP, max_chars=LONGEST,
        **state.control("find_box", state.read().find, lambda line: _look(line, run)),
    )  # fmt: skip


def draw_found(trace: xr.Dataset) -> set[Head] | None:
    """The heads that fit, by what is recorded now; None while nothing is looked for."""
    line = state.read().find
    if not line.strip():
        return None
    try:
        found = head_scores.named(line, trace, state.read().step)
    except ValueError as error:
        st.text(str(error))
        return None
    if not found.heads:
        st.text(found.note or f"No head fits.{_nearest(found, trace)}")
        return set()
    _draw_chips(found, trace)
    return set(found.heads)


def _look(line: str, run: Run) -> None:
    """The line is in force now; if it names one head, that comes into focus."""
    state.update(find=line)
    try:
        heads = head_scores.named(line, loading.trace(run), state.read().step).heads if line.strip() else ()
    except ValueError:  # said below the box
        return
    if len(heads) == 1:
        state.focus_on(heads[0])


def _draw_chips(found: HeadMatches, trace: xr.Dataset) -> None:
    """The first of them with what they were found by, to take one into focus."""
    shown, focus = found.heads[:CHIPS], choosers.focus(trace, state.read().step)
    values = _values(found, trace)
    count = f"{len(found.heads)} of {int(head_scores.head_exists(trace).sum())} heads"
    st.pills(
        count if len(found.heads) == len(shown) else f"{count}, the first {CHIPS}",
        shown, wrap=True,
        format_func=lambda head: " ".join(filter(None, (theme.head_label(*head), _said(values, head)))),
        **state.control("found_box", focus if focus in shown else None, state.focus_on),
    )  # fmt: skip


def _values(found: HeadMatches, trace: xr.Dataset) -> np.ndarray | None:
    """What the line asked about, else what colours the heads, [layer head]."""
    name = found.measure or state.read().measure
    return head_scores.head_means(trace, name, state.read().step) if name in trace else None


def _said(values: np.ndarray | None, head: Head) -> str:
    return "" if values is None or not np.isfinite(values[head]) else theme.fmt(float(values[head]), "share")


def _nearest(found: HeadMatches, trace: xr.Dataset) -> str:
    if found.nearest is None:
        return ""
    value = _said(_values(found, trace), found.nearest)
    named = f", {in_trace(trace, found.measure).label.lower()} {value}" if found.measure and value else ""
    return f" Nearest: {theme.head_label(*found.nearest)}{named}."
