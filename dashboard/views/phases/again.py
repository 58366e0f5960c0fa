"""A change looked at closer: what its steps cost to train again, and the button."""

from __future__ import annotations

import streamlit as st

from dashboard import theme
from dashboard.shared import closer
from tracer.analysis.training_curves import Curve
from tracer.store import Run


def draw_again(run: Run, phase: Curve) -> None:
    """Of the steps between the records around a change. Nothing where no page can."""
    if not closer.can(run):
        return
    assert phase.change is not None
    part = closer.part_of(run, *phase.change.around([int(step) for step in phase.steps]))
    st.header("Every step of it", anchor=False)
    if isinstance(part, str):
        st.caption(theme.unmarked(part))
        return
    st.caption(
        f"{theme.unmarked(part.cost(1))}. What comes out is a run of its own, equal to this one to the bit on the "
        f"same machine, which it checks."
    )
    closer.draw_button(part, "Train it again, every step recorded", "replay")
    closer.draw_said("replay")
