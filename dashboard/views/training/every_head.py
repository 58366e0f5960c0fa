"""Training: the entropy of every head, and a measure that is chosen, over the same steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import state, theme
from dashboard.loading import head_scores
from dashboard.shared import choosers
from dashboard.shared.entropy_bound import draw_bound
from dashboard.shared.history import choose_view, draw_measure
from dashboard.views.training.curve_lines import HEIGHT
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr


def draw_heads(run: Run, trace: xr.Dataset, beside: Run | None) -> None:
    """The entropy of every head, and a measure that is chosen, over the same steps."""
    focus, step, log_x = choosers.focus(trace), state.read().step, state.read().log
    first, *others = sorted(head_scores.head_measures(trace), key=lambda name: name != "entropy")
    heatmap = state.read().view == "heatmap"
    left, right = st.columns(2, gap="large", vertical_alignment="bottom")
    with left:
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"):
            st.header(
                f"{theme.unmarked(choosers.measure_of(run, first).label)} of every head", anchor=False, width="content"
            )
            choose_view("heads_view_box")
        said = "High: the head looks at many tokens. Low: at one. " * (first == "entropy")
        what = "row" if heatmap else "line"
        only = f" Heatmaps are of {theme.unmarked(run.name)} alone." if heatmap and beside else ""
        st.caption(f"{said}One {what} a head.{only}", help="Click one to bring it into focus on every page.")
    with right:
        measure = _choose_measure(run, others) if others else first
    shown = [(left, "entropy_curves", first)] + ([(right, "measure_curves", measure)] if measure != first else [])
    for column, key, name in shown:
        with column:
            draw_measure(run, trace, name, focus, step, key=key, height=HEIGHT + 60, log_x=log_x, beside=beside)
    with st.expander("What do these measures say?"):
        for name in dict.fromkeys([first, measure, "val_loss", "repeat_loss", "icl_score"]):
            if head_scores.holds(trace, name):
                st.markdown(choosers.explanation(name, run))
    if first == "entropy":
        draw_bound(run, focus, key="entropy_bound")


def _choose_measure(run: Run, names: list[str]) -> str:
    measure = choosers.measure_in_force(names)
    return st.selectbox(
        "Second measure", names, format_func=lambda name: choosers.measure_of(run, name).label,
        **state.control("training_measure_box", measure, lambda name: state.update(measure=name)),
    )  # fmt: skip
