"""The chart that a paper is known by, drawn again from the points that its results keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

from dashboard import theme
from dashboard.shared.figures import plain
from dashboard.shared.plots import plot

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from tracer.specimens.paper_results import PaperResults

HEIGHT = 260


def draw_chart(paper: PaperResults) -> None:
    """Its curves with what is to be seen in them; nothing of a paper that has none."""
    chart = paper.told.get("chart")
    if not chart or not chart["curves"]:
        return
    alt = f"{chart['text']} {theme.sentence(chart['y'])}"
    plot(_figure(chart), key=f"chart_{paper.name}", alt=alt, numbers=lambda: _numbers(chart))
    st.caption(f"{theme.unmarked(chart['text'])} Seed {chart['seed']}.")


def _numbers(chart: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A row a point."""
    rows = [(name, *point) for name, points in chart["curves"].items() for point in zip(*points, strict=True)]
    return dict(zip(("curve", chart["x"], chart["y"]), map(list, zip(*rows, strict=True)), strict=True))


def _figure(chart: Mapping[str, Any]) -> go.Figure:
    import plotly.graph_objects as go

    figure, quiet = go.Figure(), {"size": 12}
    for name, (x, y) in chart["curves"].items():
        told = f"{plain(name)}<br>{plain(chart['x'])} %{{x:,}}: %{{y:.3g}}<extra></extra>"
        figure.add_scatter(x=x, y=y, name=plain(name), mode="lines", line={"width": 2}, hovertemplate=told)
    across = [at for x, _ in chart["curves"].values() for at in x] or [0]
    ends = [min(across), max(across)]
    for name, level in chart["levels"].items():
        figure.add_scatter(
            x=ends, y=[level, level], name=plain(name), mode="lines+text", hoverinfo="skip", showlegend=False,
            line={"dash": "dash", "width": 1, "color": theme.ink().muted}, text=["", plain(name)],
            textposition="top left", textfont={"size": 11, "color": theme.ink().muted},
        )  # fmt: skip
    logarithmic = {axis: {"type": "log", "dtick": 1} if axis in chart["log"] else {} for axis in "xy"}
    title = {"text": plain(chart["x"]), "font": quiet, "standoff": 6}
    figure.update_xaxes(title=title, tickformat="~s", **logarithmic["x"])
    figure.update_yaxes(title={"text": plain(chart["y"]), "font": quiet}, **logarithmic["y"])
    figure.update_layout(height=HEIGHT, margin={"l": 8, "r": 8, "t": 28, "b": 8}, showlegend=True, legend={
        "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": quiet})  # fmt: skip
    return figure
