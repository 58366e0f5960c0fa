"""Any stretch of a run, trained again with every step recorded."""

from __future__ import annotations

import streamlit as st

from dashboard import theme
from dashboard.shared import closer
from tracer.store import Run

TENTH = 10
"""At first a tenth of the run, around the chosen step."""


def draw_stretch(run: Run, step: int | None) -> None:
    """Two steps, what that costs, and the button. Nothing where no page can."""
    if not closer.can(run):
        return
    begin = (run.meta.get("parent") or {}).get("step", 0)
    end = min(run.meta["step"], run.config.steps)
    if end - begin < 2:
        return
    st.header("Every step of a stretch", anchor=False)
    half = max(1, (end - begin) // (2 * TENTH))
    middle = min(max(end if step is None else step, begin + half), end - half)
    chosen, button = st.columns([3, 2], gap="large", vertical_alignment="bottom")
    with chosen:
        first, last = st.slider("Steps", begin, end, (middle - half, middle + half), key=f"stretch_steps_{run.name}")
    if first == last:
        st.caption("Choose two steps: move one of the ends.")
        return
    part = closer.part_of(run, first, last)
    if isinstance(part, str):
        st.caption(theme.unmarked(part))
        return
    with button:
        closer.draw_button(part, "Train it again, every step recorded", "replay_stretch")
    st.caption(f"{theme.unmarked(part.cost(1))}. It becomes a run of its own, checked against this one bit for bit.")
    closer.draw_said("replay_stretch")
