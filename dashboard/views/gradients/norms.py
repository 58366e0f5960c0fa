"""A picture of a norm or a ratio of every tensor over training; colour is a power of ten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme
from dashboard.shared.figures import places, step_axis, stops
from tracer.measures import UPDATE_BANDS

if TYPE_CHECKING:
    import plotly.graph_objects as go

LABEL = 13
"""Pixels that a row's label needs; of thinner rows not every one has a label."""
TALLEST = 1080
"""Pixels of all rows together, as long as none gets too thin."""
REACH = 1.0
"""Colours of the update ratio end this many powers of ten beyond the usual band, which is two wide: half of them."""
NAME = 20
"""Pixels of the name of the colours, above their bar."""
BAR, FOOT = 62, 26
"""Pixels above a picture for its colours with their name; below it for its ticks."""


def history(
    steps: ArrayLike,
    values: ArrayLike,
    names: Sequence[str],
    *,
    label: str,
    band: tuple[float, float] | None = None,
    chosen: str | None = None,
    step: int | None = None,
    log_x: bool = False,
) -> go.Figure:
    """values [step param] as a picture: a column for each recorded step, as wide as it lasts, a row for each tensor.

    `chosen` is framed and `step` marked; steps at the end that no update followed are left out. `band`: of an update
    ratio the usual one, in the middle of the colours.
    """
    import plotly.graph_objects as go

    steps, values = _updated(np.asarray(steps), np.asarray(values, np.float32))
    last = float(steps[-1] - steps[-2]) if len(steps) > 1 else 1.0  # that column lasts as long as the one before
    edges, row = places([*steps, steps[-1] + last], log_x), row_height(len(names))
    longest = 12 + round(6.7 * max(map(len, names)))
    height = BAR + FOOT + 22 + row * len(names)
    figure = go.Figure(
        go.Heatmap(
            x=edges, y=list(names), z=_power(values).T, coloraxis="coloraxis", hoverongaps=False,
            customdata=np.stack([values.T, np.broadcast_to(steps.astype(np.float32), values.T.shape)], -1),
            hovertemplate=f"%{{y}}<br>step %{{customdata[1]:,d}}<br>{label} %{{customdata[0]:.2~g}}<extra></extra>",
        )
    )  # fmt: skip
    above = {"x": 0.5, "xref": "paper", "xanchor": "center", "y": 1, "yanchor": "top", "pad": {"t": 2}}
    figure.update_layout(
        height=height, coloraxis=_colours(values, band, height),
        title={"text": label, "font": {**_MONO, "size": 12}, **above},
        margin={"l": longest, "r": 14, "t": BAR, "b": FOOT + 22},
    )  # fmt: skip
    step_axis(figure, log_x, showgrid=False, tickangle=0, nticks=7, automargin=False, tickfont=_MONO)
    figure.update_xaxes(title_standoff=26)  # counted from the axis, tick labels included
    figure.update_yaxes(
        type="category", autorange="reversed", showgrid=False, tickfont=_MONO, automargin=False, ticks="",
        ticklabelstandoff=6, tickmode="array", tickvals=list(names[:: -(-LABEL // row)]),
    )  # fmt: skip
    if chosen is not None and chosen in names:
        at = list(names).index(chosen)
        _frame(figure, edges[0], at - 0.5, edges[-1], at + 0.5)
    if step is not None and step in steps:
        column = int(np.flatnonzero(steps == step)[0])
        _frame(figure, edges[column], -0.5, edges[column + 1], len(names) - 0.5)
    return figure


def _updated(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Up to the last step that has a value; Plotly draws no cells behind it, and frames would stick out."""
    held = np.flatnonzero(~np.isnan(values).all(axis=1))
    end = held[-1] + 1 if held.size else len(steps)
    return steps[:end], values[:end]


def row_height(n: int) -> int:
    """Pixels of a tensor's row: fewer when there are many, down to 4, so that the picture stays on a page."""
    return 30 if n <= 16 else max(4, min(18, TALLEST // n))


_MONO = {"family": "JetBrains Mono, monospace", "size": 11}


def _power(values: np.ndarray) -> np.ndarray:
    """log10 where there is one, NaN elsewhere: zeros are gaps, not the smallest value."""
    return np.log10(np.where(values > 0, values, np.nan)).astype(np.float32)


def reach(values: ArrayLike, band: tuple[float, float] | None = None) -> tuple[float, float]:
    """The powers of ten between which colours differ; the update ratio's are centred on its `band`."""
    if band is not None:
        return math.log10(band[0]) - REACH, math.log10(band[1]) + REACH
    powers = _power(np.asarray(values))
    powers = powers[np.isfinite(powers)]
    low, high = np.percentile(powers, [1, 99]).tolist() if powers.size else (-1.0, 1.0)
    return (low, high) if high - low > 0.5 else (low - 0.5, high + 0.5)


def _colours(values: np.ndarray, band: tuple[float, float] | None, height: int) -> dict[str, Any]:
    """A colour axis over powers of ten with a bar on top; of an update ratio its bands stand below it, by name.

    The bar hangs from the top of the picture's `height`, so that Plotly makes no room of its own for it.
    """
    low, high = reach(values, band)
    every = max(1, round((high - low) / 4))
    ticks: dict[float, str] = {
        t: _ten_to(t) for t in range(int(np.ceil(low)), int(np.floor(high)) + 1, 1 if band else every)
    }
    if band:
        edges = {math.log10(one.low) for one in UPDATE_BANDS if one.low}
        ticks = {at: text for at, text in ticks.items() if at in edges}
        for one in UPDATE_BANDS:
            start = max(low, math.log10(one.low)) if one.low else low
            stop = min(high, math.log10(one.high)) if math.isfinite(one.high) else high
            if stop > start:
                ticks[(start + stop) / 2] = f"<br>{one.name}"
    bar = {
        "orientation": "h", "x": 0, "xanchor": "left", "xpad": 0, "y": 1 - NAME / height, "yref": "container",
        "yanchor": "top", "ypad": 0, "len": 1, "thickness": 8, "outlinewidth": 0, "tickangle": 0, "tickfont": _MONO,
        "tickvals": list(ticks), "ticktext": list(ticks.values()),
    }  # fmt: skip
    return {"cmin": low, "cmax": high, "colorscale": stops("pace" if band else "score"), "colorbar": bar}


def _ten_to(power: int) -> str:
    """0.01, 1, 100; 1e−4 and 1e5 beyond."""
    return f"{10.0**power:g}" if -3 <= power <= 3 else f"1e{power}".replace("-", "−")


def _frame(figure: go.Figure, x0: float, y0: float, x1: float, y1: float) -> None:
    """A frame that shows on any colour: a line on a wider line of the opposite lightness."""
    for colour, width in (("#0f1218", 5), ("#ffffff", 2)) if theme.is_dark() else (("#ffffff", 5), ("#111622", 2)):
        figure.add_shape(type="rect", x0=x0, y0=y0, x1=x1, y1=y1, line={"color": colour, "width": width})
