"""The pictures of the Circuits page: a spectrum, a pattern of positions alone, the parts of a sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dashboard import theme
from dashboard.shared.figures import plain, stops

if TYPE_CHECKING:
    import plotly.graph_objects as go

DECADES = 3
"""Shown below the largest eigenvalue; what is smaller lies on the innermost ring."""


def spectrum(values: np.ndarray) -> go.Figure:
    """Complex eigenvalues [d_head]: the angle is theirs, the radius the logarithm of their size.

    Orange on the right copies, blue on the left suppresses, grey in between only turns.
    """
    import plotly.graph_objects as go

    ink, values = theme.ink(), values[np.abs(values) > 0]
    size = np.abs(values)
    most = np.ceil(2 * np.log10(size.max(initial=1e-12))) / 2
    quiet = {"gridcolor": ink.grid, "linecolor": ink.grid, "tickfont": {"size": 11}}
    figure = go.Figure(
        go.Scatterpolar(
            r=np.maximum(size, 10 ** (most - DECADES)), theta=np.degrees(np.angle(values)), mode="markers",
            customdata=np.stack([np.real(values), np.imag(values), size], -1),
            marker={"size": 9, "color": np.cos(np.angle(values)), "cmin": -1, "cmax": 1, "line": {"color": ink.page},
                    "colorscale": turns()},
            hovertemplate="real part %{customdata[0]:.3f}<br>imaginary part %{customdata[1]:.3f}"
                          "<br>size %{customdata[2]:.3f}<extra>Eigenvalue</extra>",
        )
    )  # fmt: skip
    figure.update_layout(
        height=250, margin={"l": 84, "r": 60, "t": 24, "b": 24},
        polar={
            "bgcolor": "rgba(0,0,0,0)",
            "angularaxis": {**quiet, "tickvals": [0, 90, 180, 270], "ticks": "outside", "ticklen": 6,
                            "tickcolor": "rgba(0,0,0,0)", "ticktext": ["copies", "imaginary", "suppresses", ""]},
            "radialaxis": {**quiet, "type": "log", "range": [most - DECADES - 0.25, most], "angle": 45, "dtick": 1,
                           "tickangle": 45, "exponentformat": "power",
                           "tickfont": {"size": 9}},  # powers are written a quarter larger
        },
    )  # fmt: skip
    return figure


def turns() -> list[list[Any]]:
    """The colours of a signed change, with the grey of words for what has no side."""
    scale = stops("change")
    middle = [[0.4, theme.ink().muted], [0.6, theme.ink().muted]]
    return [*([0.8 * at, colour] for at, colour in scale if at < 0.4), *middle,
            *([0.2 + 0.8 * at, colour] for at, colour in scale if at > 0.6)]  # fmt: skip


def positions(pattern: np.ndarray) -> go.Figure:
    """Attention [query_pos key_pos] without tokens; the colours run with the square root."""
    import plotly.graph_objects as go

    n = len(pattern)
    shown = np.where(np.tri(n, dtype=bool), pattern, np.nan).astype(np.float32)
    back = np.arange(n)[:, None] - np.arange(n)
    marks = [0, 0.05, 0.25, 1]
    figure = go.Figure(
        go.Heatmap(
            z=np.sqrt(shown), zmin=0, zmax=1, colorscale=stops("attention"), hoverongaps=False,
            customdata=np.stack([shown, back.astype(np.float32)], -1),
            colorbar={"thickness": 8, "outlinewidth": 0, "tickvals": np.sqrt(marks), "ticktext": list(map(str, marks)),
                      "tickfont": {"size": 11}},
            hovertemplate="position %{y} → %{x}, %{customdata[1]} back<br><b>%{customdata[0]:.3f}</b><extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(height=420, margin={"l": 52, "r": 8, "t": 8, "b": 44})
    figure.update_xaxes(title={"text": "position that is looked at", "font": {"size": 12}}, showgrid=False,
                        zeroline=False, constrain="domain")  # fmt: skip
    figure.update_yaxes(title={"text": "position that looks", "font": {"size": 12}}, showgrid=False, zeroline=False,
                        autorange="reversed", scaleanchor="x", constrain="domain")  # fmt: skip
    return figure


def contributions(names: Sequence[str], values: Sequence[float], unit: str) -> go.Figure:
    """Each part where the ones before it end, and their sum."""
    import plotly.graph_objects as go

    up, down = (theme.palette("change")[theme.mode()][i] for i in (13, 3))
    bars = [*values, float(np.sum(values))]
    figure = go.Figure(
        go.Waterfall(
            orientation="h", y=[*map(plain, names), "sum"], x=bars,
            measure=["relative"] * len(names) + ["total"],
            text=[theme.signed(v, theme.digits(bars)) for v in bars],
            textposition="outside", cliponaxis=False, connector={"line": {"color": theme.ink().grid}},
            increasing={"marker": {"color": up}}, decreasing={"marker": {"color": down}},
            totals={"marker": {"color": theme.ink().muted}},
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(height=64 + 26 * (len(names) + 1), showlegend=False, margin={"l": 8, "r": 48, "t": 8, "b": 40})
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    ends = np.cumsum([0.0, *values])
    room = 0.15 * (np.ptp(ends) or 1.0)  # for the numbers
    figure.update_xaxes(title={"text": unit, "font": {"size": 12}}, range=[ends.min() - room, ends.max() + room])
    return figure
