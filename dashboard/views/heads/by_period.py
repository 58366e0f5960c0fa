"""The induction score of the head in focus beside its control, and, once asked for, at every period."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import theme
from dashboard.loading import head_scores
from dashboard.shared import plots, prompts
from dashboard.views.heads import data
from tracer.measures.aliases import Head
from tracer.store import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import xarray as xr

    from tracer.analysis.induction_by_period import ByPeriod

TITLE = "Induction score by period"
"""Without the head's name, or another head would close it."""
HEIGHT = 260


def draw_induction(run: Run, trace: xr.Dataset, head: Head, step: int) -> None:
    """Nothing where the run has no induction score."""
    if not head_scores.holds(trace, "induction"):
        return
    with st.container(key="induction_words"):
        st.caption(head_scores.induction_words(trace, head, step))
    if not prompts.can_read(run) or run.about.d_vocab is None:
        return
    opened = st.expander(TITLE, icon=":material/ssid_chart:", key="by_period_open", on_change="rerun")
    with opened:
        if opened.open:
            found = data.by_period(run, step)
            _draw(found, head)


def _draw(found: ByPeriod, head: Head) -> None:
    label, score, control = theme.head_label(*head), found.score[:, *head], found.control[:, *head]
    if not len(score):
        st.caption("Its context or its vocabulary leaves no room for two copies.")
        return
    if not np.isfinite(score).any():
        st.caption(f"At this step the attention of {label} is not finite.")
        return
    best = int(np.nanargmax(score))
    mean, most = (theme.fmt(float(one), "induction") for one in (np.nanmean(score), score[best]))
    st.caption(
        f"Random tokens, then the same again. {label} scores {mean} on average over {len(score)} "
        f"period{'s' * (len(score) > 1)} and most, {most}, at {found.periods[best]}. An induction head scores at all "
        "of them, a head that looks a fixed number of tokens back at one."
    )
    columns = {"period": found.periods, "score": score, "control": control, "uniform attention": found.uniform}
    listed = {name: values.tolist() for name, values in columns.items()}
    plots.plot(
        _figure(found, head), key="by_period", numbers=lambda: listed,
        alt=f"The induction score of {label} at each period, and without a repeat",
    )  # fmt: skip


def _figure(found: ByPeriod, head: Head) -> go.Figure:
    import plotly.graph_objects as go

    ink = theme.ink()
    lines = (
        ("score", found.score[:, *head], {"color": ink.text, "width": 2}),
        ("control", found.control[:, *head], {"color": ink.muted, "width": 2}),
        ("uniform", found.uniform, {"color": ink.muted, "width": 1, "dash": "dot"}),
    )
    figure = go.Figure(
        [go.Scatter(x=found.periods, y=y, name=name, mode="lines", line=line) for name, y, line in lines]
    )
    figure.update_xaxes(title={"text": "period (tokens)", "font": {"size": 12}}, zeroline=False)
    figure.update_yaxes(range=[0, 1], zeroline=False)
    figure.update_layout(
        height=HEIGHT, margin={"l": 40, "r": 12, "t": 30, "b": 40},
        legend={"orientation": "h", "y": 1.15, "x": 0}, hovermode="x unified",
    )  # fmt: skip
    return figure
