"""A stretch of a run looked at closer: trained again in a run of its own, with every step recorded."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import jobs, navigation, theme
from dashboard.access import read_only
from tracer.store import Run
from tracer.store.stretch import Stretch, stretch


def can(run: Run) -> bool:
    """May a page train a stretch of this run again?"""
    return run.can("recipe") and not run.live and not read_only()


def around(steps: list[int], step: int, last: int) -> tuple[int, int] | None:
    """The records on either side of a step, of a run whose `last` update may have none; None where all between them
    are there."""
    first = max((one for one in steps if one < step), default=step)
    after = min((one for one in steps if one > step), default=last)
    return (first, after) if after - first > len([one for one in steps if first < one <= after]) else None


def part_of(run: Run, first: int, last: int) -> Stretch | str:
    """From where these steps can be had again; in words, why they cannot."""
    try:
        return stretch(run, first, last)
    except ValueError as error:
        return str(error)


def draw_button(part: Stretch, label: str, key: str, *, says_cost: bool = False, **look: Any) -> None:
    """Begin it; the help says the command, and what it costs where the page does not."""
    cost = f"{theme.unmarked(part.cost(1))}. " if says_cost else ""
    st.button(label, key=key, icon=":material/zoom_in:", on_click=_begin, args=(part, key),
              help=f"{cost}`tracer replay {part.run.name} {part.first}:{part.last}`", **look)  # fmt: skip


def draw_said(key: str) -> None:
    """What came of pressing that button."""
    if said := st.session_state.pop(f"{key} said", None):
        st.caption(theme.unmarked(said))
        st.page_link(navigation.page("runs"), label="Runs shows how it stands", icon=":material/arrow_forward:")


def _begin(part: Stretch, key: str) -> None:
    run, first, last = part.run, part.first, part.last
    try:
        started = jobs.replay(run, first, last, jobs.free_name(f"{run.name}-{first}-{last}"))
        said = f"{started.name} is being trained."
    except (ValueError, OSError) as error:
        said = str(error)
    st.session_state[f"{key} said"] = said
