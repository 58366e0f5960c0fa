"""A change looked at closer: what its steps cost to train again, and the button."""

from __future__ import annotations

import streamlit as st

from dashboard import navigation, state, theme
from dashboard.shared import closer
from tracer.analysis.training_curves import Curve
from tracer.measures import HEAD_MEASURES
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
        f"{theme.unmarked(part.cost(1))}. It becomes a run of its own, checked to be equal to this one bit for bit."
    )
    with st.container(horizontal=True):
        closer.draw_button(part, "Train it again, every step recorded", "replay")
        if phase.name in HEAD_MEASURES and len(phase.heads) == 1:
            st.button("Which rows moved it?", key="rows_of_change", icon=":material/arrow_forward:", type="tertiary",
                      on_click=_rows, args=(phase,), help="Gradients makes a step again without each row")  # fmt: skip
    closer.draw_said("replay")


def _rows(phase: Curve) -> None:
    """The record in the middle of the change, its head and its score, on the page of gradients."""
    assert phase.change is not None
    (layer, head), middle = phase.heads[0], phase.change.midpoint
    state.update(step=min(map(int, phase.steps[:-1]), key=lambda step: abs(step - middle)), layer=layer, head=head)
    st.session_state["rows_measure"] = phase.name
    st.switch_page(navigation.page("gradients"))
