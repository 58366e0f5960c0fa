"""Pictures of g, w and u: every tensor over training, and every head's Q, K, V and O at one step.

Colour is a power of ten.
"""

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
ROOMY = 4
"""Up to so many heads a cell has room for two digits."""
REACH = 2.0
"""Colours of the update ratio end this many powers of ten from the middle."""
NAME = 20
"""Pixels of the name of the colours, above their bar."""
BAR, TITLES, FOOT = 48, 20, 26
"""Pixels above a picture for its colours with their name, then for the names of its grids; below it for its ticks."""


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


def heads(
    values: ArrayLike,
    *,
    label: str,
    ratio: bool = False,
    dark: bool = False,
    chosen: tuple[int, int] | None = None,
    matrices: Sequence[str] = ("Q", "K", "V", "O"),
) -> go.Figure:
    """values [layer head matrix] as one small grid for each matrix; a click on a cell is a point at x head, y layer."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    values = np.asarray(values, np.float32)
    n_layers, n_heads, _ = values.shape
    layers, columns = np.arange(n_layers), np.arange(n_heads)
    grid_height = max(84, 24 + 30 * n_layers)
    inside = 2 * grid_height + TITLES + 8
    height = BAR + TITLES + inside + FOOT
    figure = make_subplots(
        rows=2,
        cols=2,
        subplot_titles=[f"W_{m}" for m in matrices],
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.04,
        vertical_spacing=(TITLES + 8) / inside,
    )
    axis, digits = _colours(values, ratio, dark, height), 1 if n_heads <= ROOMY else 0
    at = np.array([[layer, head] for layer in layers for head in columns])
    for i, matrix in enumerate(matrices):
        where: dict[str, Any] = {"row": i // 2 + 1, "col": i % 2 + 1}
        grid = values[..., i]
        printed = [_brief(float(v), digits) for v in grid.ravel()] if grid.size <= 24 else None
        cells = go.Heatmap(
            x=columns,
            y=layers,
            z=_power(grid),
            coloraxis="coloraxis",
            xgap=2,
            ygap=2,
            hoverinfo="skip",
        )
        figure.add_trace(cells, **where)
        clicks = go.Scatter(  # a heatmap reports no clicks, so invisible points on it take them
            x=at[:, 1],
            y=at[:, 0],
            customdata=grid.ravel(),
            mode="markers+text" if printed else "markers",
            text=printed,
            textfont={**_MONO, "size": 10, "color": [_ink(float(v), axis) for v in grid.ravel()]} if printed else None,
            showlegend=False,
            marker={"size": 26, "opacity": 0},
            hovertemplate=f"L%{{y:d}}H%{{x:d}} W_{matrix}<br>{label} %{{customdata:.2e}}<extra></extra>",
        )
        figure.add_trace(clicks, **where)
        if not np.isfinite(grid).any():
            figure.add_annotation(
                text=f"no W_{matrix}", x=(n_heads - 1) / 2, y=(n_layers - 1) / 2, showarrow=False, opacity=0.7, **where
            )
        elif chosen is not None:
            _frame(
                figure,
                chosen[1] - 0.5,
                chosen[0] - 0.5,
                chosen[1] + 0.5,
                chosen[0] + 0.5,
                dark,
                **where,
            )
    figure.update_layout(
        template=theme.plotly_template(dark),
        height=height,
        coloraxis=axis,
        title=_name(label),
        hoverdistance=40,
        margin={"l": 12 + 7 * len(f"L{n_layers - 1}"), "r": 14, "t": BAR + TITLES, "b": FOOT},
    )
    figure.update_annotations(font=_MONO)
    figure.update_xaxes(dtick=max(1, n_heads // 8), showgrid=False, zeroline=False, range=[-0.5, n_heads - 0.5])
    figure.update_yaxes(dtick=max(1, n_layers // 8), showgrid=False, zeroline=False, range=[n_layers - 0.5, -0.5])
    figure.update_xaxes(ticks="", tickprefix="H", tickangle=0, tickfont=_MONO, automargin=False)
    figure.update_yaxes(ticks="", tickprefix="L", tickfont=_MONO, automargin=False, ticklabelstandoff=6)
    return figure


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


def _brief(value: float, digits: int) -> str:
    """9.1e−3, or 9e−3: as much as fits a small cell."""
    return (
        f"{value:.{digits}e}".replace("e-0", "e−").replace("e-", "e−").replace("e+0", "e") if np.isfinite(value) else ""
    )


def _ink(value: float, axis: dict[str, Any]) -> str:
    """Black or white, whichever stands out more from the value's colour."""
    power = float(_power(np.asarray(value)))
    share = np.clip((power - axis["cmin"]) / (axis["cmax"] - axis["cmin"]), 0, 1) if np.isfinite(power) else 0.0
    colour = axis["colorscale"][round(float(share) * (len(axis["colorscale"]) - 1))][1]
    return max(("#0b0e14", "#ffffff"), key=lambda ink: theme.contrast(ink, colour))


def _colours(values: np.ndarray, ratio: bool, dark: bool, height: int) -> dict[str, Any]:
    """A colour axis over powers of ten with a bar on top; the update ratio's is centred on the rule of thumb.

    The bar hangs from the top of the picture's `height`, so that Plotly makes no room of its own for it.
    """
    powers = _power(values)
    powers = powers[np.isfinite(powers)]
    if ratio:
        low, high = RULE_OF_THUMB - REACH, RULE_OF_THUMB + REACH
    else:
        low, high = np.percentile(powers, [1, 99]).tolist() if powers.size else (-1.0, 1.0)
        low, high = (low, high) if high - low > 0.5 else (low - 0.5, high + 0.5)
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


def _frame(figure: go.Figure, x0: float, y0: float, x1: float, y1: float, dark: bool, **where: int) -> None:
    """A frame that shows on any colour: a line on a wider line of the opposite lightness."""
    for colour, width in (("#0f1218", 5), ("#ffffff", 2)) if dark else (("#ffffff", 5), ("#111622", 2)):
        figure.add_shape(type="rect", x0=x0, y0=y0, x1=x1, y1=y1, line={"color": colour, "width": width}, **where)
