"""A change looked at closer: its steps trained again in a run of their own, with every one recorded."""

from __future__ import annotations

import streamlit as st

from dashboard import jobs, navigation, theme
from dashboard.access import read_only
from tracer.analysis.training_curves import Curve
from tracer.store import Run
from tracer.store.stretch import stretch


def draw_again(run: Run, phase: Curve) -> None:
    """Of the steps between the records around a change: what they cost, and the button. Nothing where no page can."""
    if run.why_not("recipe") or run.live or read_only():
        return
    assert phase.change is not None
    first, last = phase.change.around([int(step) for step in phase.steps])
    st.header("Every step of it", anchor=False)
    try:
        part = stretch(run, first, last)
    except ValueError as error:
        st.caption(theme.unmarked(str(error)))
        return
    st.caption(
        f"{theme.unmarked(part.cost(1))}. What comes out is a run of its own, equal to this one to the bit on the "
        f"same machine, which it checks."
    )
    st.button("Train it again, every step recorded", key="replay", icon=":material/zoom_in:",
              on_click=_begin, args=(run, first, last),
              help=f"`tracer replay {run.name} {first}:{last}`")  # fmt: skip
    if said := st.session_state.pop("replay_said", None):
        st.caption(theme.unmarked(said))
        st.page_link(navigation.page("runs"), label="Runs shows how it stands", icon=":material/arrow_forward:")


def _begin(run: Run, first: int, last: int) -> None:
    try:
        started = jobs.replay(run, first, last, jobs.free_name(f"{run.name}-{first}-{last}"))
        st.session_state["replay_said"] = f"{started.name} is being trained."
    except (ValueError, OSError) as error:
        st.session_state["replay_said"] = str(error)
