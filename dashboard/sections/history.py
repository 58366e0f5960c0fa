"""A measure of every head over training, as lines or as a carpet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading, parts, state, theme
from dashboard.components.curves import curves
from dashboard.loading.looking import Head
from tracer.measures import MEASURES
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr


def draw_history(run: Run, trace: xr.Dataset, measure: str, focus: Head, step: int) -> None:
    """Nothing where there is one step only and no more will come."""
    if trace.sizes["step"] == 1 and not run.live:
        return
    st.subheader(f"{MEASURES[measure].label} over training", anchor=False)
    curves(
        loading.head_curves(run, measure), key="history", selected=theme.head_label(*focus), step=step,
        scale=parts.scale(measure, run, trace[measure].values), height=240, on_change=_choose_head,
    )  # fmt: skip


def _choose_head(label: str | None) -> None:
    if label is not None:  # None: the chosen line was clicked again, and some head stays in focus
        layer, head = theme.parse_head(label)
        state.update(layer=layer, head=head)
