"""A picture of g, w and u of every tensor over training; colour is a power of ten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme

if TYPE_CHECKING:
    import plotly.graph_objects as go

RULE_OF_THUMB = -3.0
"""The middle of the update ratio's colours: 10 to this power."""
LABEL = 13
"""Pixels that a row's label needs; of thinner rows not every one has a label."""
TALLEST = 1080
"""Pixels of all rows together, as long as none gets too thin."""
REACH = 2.0
"""Colours of the update ratio end this many powers of ten from the middle."""
NAME = 20
"""Pixels of the name of the colours, above their bar."""
BAR, FOOT = 48, 26
"""Pixels above a picture for its colours with their name; below it for its ticks."""


def history(
    steps: ArrayLike,
    values: ArrayLike,
    names: Sequence[str],
    *,
    label: str,
    ratio: bool = False,
    dark: bool = False,
    chosen: str | None = None,
    step: int | None = None,
) -> go.Figure:
    """values [step param] as a picture: a column for each recorded step, a row for each tensor.

    `chosen` is framed and `step` marked; steps at the end that no update followed are left out. Steps are recorded
    densely at first, so equal columns are not equal times.
    """
    import plotly.graph_objects as go

    steps, values = _updated(np.asarray(steps), np.asarray(values, np.float32))
    columns, row = [str(s) for s in steps], row_height(len(names))
    height = BAR + FOOT + 22 + row * len(names)
    figure = go.Figure(
        go.Heatmap(
            x=columns,
            y=list(names),
            z=_power(values).T,
            customdata=values.T,
            coloraxis="coloraxis",
            hoverongaps=False,
            hovertemplate=f"%{{y}}<br>step %{{x}}<br>{label} %{{customdata:.2e}}<extra></extra>",
        )
    )
    figure.update_layout(
        template=theme.plotly_template(dark),
        height=height,
        coloraxis=_colours(values, ratio, dark, height),
        title=_name(label),
        margin={"l": _width(names), "r": 14, "t": BAR, "b": FOOT + 22},
    )
    figure.update_xaxes(title=_title("recorded step"), type="category", showgrid=False, tickangle=0)
    every = columns[:: -(-len(columns) // 6)]
    figure.update_xaxes(tickmode="array", tickvals=every, ticktext=[f"{int(step):,}" for step in every])
    figure.update_xaxes(automargin=False, tickfont=_MONO)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False, tickfont=_MONO, automargin=False)
    figure.update_yaxes(ticks="", ticklabelstandoff=6)
    figure.update_yaxes(tickmode="array", tickvals=list(names[:: -(-LABEL // row)]))
    if chosen is not None and chosen in names:
        at = list(names).index(chosen)
        _frame(figure, -0.5, at - 0.5, len(columns) - 0.5, at + 0.5, dark)
    if step is not None and str(step) in columns:
        column = columns.index(str(step))
        _frame(figure, column - 0.5, -0.5, column + 0.5, len(names) - 0.5, dark)
    return figure


def _width(names: Sequence[str]) -> int:
    """Pixels of the longest label."""
    return 12 + round(6.7 * max(map(len, names)))


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


def _title(text: str) -> dict[str, Any]:
    return {"text": text, "font": {"size": 12}, "standoff": 26}  # counted from the axis, tick labels included


def _name(label: str) -> dict[str, Any]:
    """What the colours show, above their bar."""
    font = {**_MONO, "size": 12}
    return {
        "text": label,
        "font": font,
        "x": 0.5,
        "xref": "paper",
        "xanchor": "center",
        "y": 1,
        "yanchor": "top",
        "pad": {"t": 2},
    }


def reach(values: ArrayLike, ratio: bool) -> tuple[float, float]:
    """The powers of ten between which colours differ; the update ratio's are centred on the rule of thumb."""
    if ratio:
        return RULE_OF_THUMB - REACH, RULE_OF_THUMB + REACH
    powers = _power(np.asarray(values))
    powers = powers[np.isfinite(powers)]
    low, high = np.percentile(powers, [1, 99]).tolist() if powers.size else (-1.0, 1.0)
    return (low, high) if high - low > 0.5 else (low - 0.5, high + 0.5)


def _colours(values: np.ndarray, ratio: bool, dark: bool, height: int) -> dict[str, Any]:
    """A colour axis over powers of ten with a bar on top.

    The bar hangs from the top of the picture's `height`, so that Plotly makes no room of its own for it.
    """
    low, high = reach(values, ratio)
    every = max(1, round((high - low) / 4))
    ticks = list(range(int(np.ceil(low)), int(np.floor(high)) + 1, every))
    stops = theme.palette("change" if ratio else "score")["dark" if dark else "light"]
    return {
        "cmin": low,
        "cmax": high,
        "colorscale": [[i / (len(stops) - 1), colour] for i, colour in enumerate(stops)],
        "colorbar": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "xpad": 0,
            "y": 1 - NAME / height,
            "yref": "container",
            "yanchor": "top",
            "ypad": 0,
            "len": 1,
            "thickness": 8,
            "tickvals": ticks,
            "ticktext": [_ten_to(t) for t in ticks],
            "tickangle": 0,
            "outlinewidth": 0,
            "tickfont": _MONO,
        },
    }


def _ten_to(power: int) -> str:
    """1e−3; 1 and 10 as they are."""
    return {0: "1", 1: "10"}.get(power, f"1e{power}".replace("-", "−"))


def _frame(figure: go.Figure, x0: float, y0: float, x1: float, y1: float, dark: bool) -> None:
    """A frame that shows on any colour: a line on a wider line of the opposite lightness."""
    for colour, width in (("#0f1218", 5), ("#ffffff", 2)) if dark else (("#ffffff", 5), ("#111622", 2)):
        figure.add_shape(type="rect", x0=x0, y0=y0, x1=x1, y1=y1, line={"color": colour, "width": width})
