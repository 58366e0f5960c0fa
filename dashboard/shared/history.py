"""A measure of every head over training, as lines or as a heatmap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import comparison, head_scores
from dashboard.shared import choosers
from dashboard.shared.mount import draw
from tracer.measures.aliases import Head
from tracer.pictures import curves, step_heatmap
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

VIEWS = {"lines": "Lines", "heatmap": "Heatmap"}
HEATMAPS = {
    "history": "history_heatmap", "entropy_curves": "entropy_curves_heatmap",
    "measure_curves": "measure_curves_heatmap",
}  # fmt: skip
"""The key of the heatmap that stands where these lines do."""
LEGEND = 40
"""Pixels that a heatmap's legend is higher than that of lines: both take the same room."""
HELP = "Lines: one a head. Heatmap: a row a head, coloured by the measure, sorted by when each head changed."


def draw_history(run: Run, trace: xr.Dataset, measure: str, focus: Head, step: int) -> None:
    """Nothing where there is one step only and no more will come."""
    if trace.sizes["step"] == 1 and not run.live:
        return
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"):
        st.header(
            f"{theme.unmarked(choosers.measure_of(run, measure).label)} over training", anchor=False, width="content"
        )
        choose_view("history_box")
    draw_measure(run, trace, measure, focus, step, key="history", height=240)


def choose_view(key: str) -> None:
    """Lines or heatmap, for every picture of heads over training."""
    st.segmented_control(
        "Heads over training as", list(VIEWS), required=True, label_visibility="collapsed", help=HELP,
        format_func=VIEWS.__getitem__,
        **state.control(key, state.read().view, lambda view: state.update(view=view)),
    )  # fmt: skip


def _partner(run: Run, trace: xr.Dataset, beside: Run | None, focus: Head, step: int | None) -> str | None:
    """The line of the second run whose head is most like the one in focus, where labels mean nothing."""
    if beside is None or comparison.began_alike(run, beside):
        return None
    at = int(trace["step"].values[-1]) if step is None else step
    alike = head_scores.top_head(-comparison.unlikeness(trace, at, loading.trace(beside), at)[focus])
    return alike and f"{theme.head_label(*alike)} · {beside.name}"


def draw_measure(
    run: Run, trace: xr.Dataset, measure: str, focus: Head, step: int | None, *, key: str, height: int,
    log_x: bool = False, beside: Run | None = None,
) -> None:  # fmt: skip
    """One measure of every head as chosen, as lines those of a second run as well; a click takes a head into focus."""
    label, scale = theme.head_label(*focus), choosers.scale(measure, run, trace[measure].values)
    if state.read().view == "heatmap":
        picture = step_heatmap.picture(
            loading.head_heatmap(run, measure), selected=label, step=step, log_x=log_x, scale=scale,
            height=height - LEGEND,
        )  # fmt: skip
        draw(picture, key=HEATMAPS[key], on_change=state.focus_on)
    else:
        blob = loading.head_curves(run, measure)
        if beside is not None:
            blob = loading.head_curves_of((run, beside), measure)
        picture = curves.picture(
            blob, selected=label, partner=_partner(run, trace, beside, focus, step), step=step,
            log_x=log_x, scale=scale, height=height,
        )  # fmt: skip
        draw(picture, key=key, on_change=lambda picked: state.focus_on(picked and picked.partition(" · ")[0]))
