"""What the figures of several pages share: text that is never markup, an axis of steps, heads as points."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme
from tracer.measures.aliases import Head
from tracer.pictures.colours import LINES

if TYPE_CHECKING:
    import plotly.graph_objects as go


NAMED = 64
"""Heads of which each gets a name where there is room for it."""
WIDE, HIGH = 34 / 420, 14 / 280
"""A name, as a share of the narrowest plot and of its height."""
BESIDE = {
    "top center": (0.0, 1.0),
    "bottom center": (0.0, -1.0),
    "middle right": (0.7, 0.0),
    "middle left": (-0.7, 0.0),
}
"""Where a name may stand, in its own widths and heights away from the point."""


def plain(text: str) -> str:
    """A text as Plotly shows it, which takes <b>, <a> and &lt; for markup."""
    return html.escape(text, quote=False)


def places(steps: ArrayLike, log: bool) -> np.ndarray:
    """Where steps stand: on a logarithmic axis, 0 stands at the first step after it."""
    at = np.asarray(steps, float)
    return np.maximum(at, at[at > 0].min(initial=np.inf)) if log and (at > 0).any() else at


def step_axis(figure: go.Figure, log: bool, steps: ArrayLike | None = None, **options: Any) -> None:
    """Name and scale the x axis; from the first to the last of these `steps`, as a timeline, or as Plotly would."""
    if steps is not None and (at := places(steps, log)).size:
        first, last = at.min(), at.max()
        options["range"] = np.log10([first, last]).tolist() if log and first > 0 else [first, last]
    title = {"text": "step (log)" if log else "step", "font": {"size": 12}, "standoff": 6}
    kind = {"type": "log", "dtick": 1} if log else {"type": "linear"}
    figure.update_xaxes(title=title, tickformat=",d", zeroline=False, **kind, **options)


def rule(figure: go.Figure, x: float, colour: str, **options: Any) -> None:
    """A vertical line over the whole height."""
    line = {"color": colour, "width": 1.5, **options}
    figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="paper", line=line)


def stops(meaning: str, low: float = 0.0) -> list[list[Any]]:
    """A palette as Plotly's colour scale, without the part of it below `low`."""
    colours = theme.palette(meaning)[theme.mode()]
    colours = colours[round(low * (len(colours) - 1)) :]
    return [[i / (len(colours) - 1), colour] for i, colour in enumerate(colours)]


def scatter(
    x: np.ndarray,
    y: np.ndarray,
    *,
    x_label: str,
    y_label: str,
    edges: tuple[float, float] | None = None,
    corners: tuple[str, str] = ("", ""),
    selected: Head | None = None,
    lit: Collection[Head] | None = None,
    shade: tuple[np.ndarray, theme.Scale] | None = None,
) -> go.Figure:
    """A point a head of x and y [layer head], left out where either is nan, a colour a layer, or that of `shade`.

    Layers of one ramp of colours are told by a bar, as a list of 32 would take the picture's place.
    Dashed lines stand at `edges`; `corners` name what lies beyond them below right, and above left. A name that would
    cover another, and all of more than NAMED heads, only the pointer tells. Heads that are not in `lit` are dimmed.
    """
    import plotly.graph_objects as go

    if x.shape != y.shape or x.ndim != 2:
        raise ValueError(f"x {x.shape} and y {y.shape} must both be [layer head]")
    ink, n_layers, across, up = theme.ink(), len(x), plain(x_label), plain(y_label)
    names = _names(x, y, selected) if x.size <= NAMED else {}
    colours = theme.layer_colours(n_layers)[theme.mode()]
    figure, hues, told, bar = go.Figure(), np.zeros(x.shape), "", None
    if shade is not None:
        hues, told = shade[0], f"<br>{plain(shade[1].label)} %{{marker.color:.3f}}"
        palest = 0.0 if shade[1].palette == "change" else 0.2  # of a score it would be lost on the page
        bar = _colour_axis(shade[1].label, shade[1].lo, shade[1].hi, stops(shade[1].palette, palest))
    elif n_layers > len(LINES["light"]):
        hues, last = np.indices(x.shape)[0].astype(float), n_layers - 1
        bar = _colour_axis("layer", 0, last, [[layer / last, colour] for layer, colour in enumerate(colours)])
    for layer, colour in enumerate(colours):
        heads = np.flatnonzero(np.isfinite([x[layer], y[layer], hues[layer]]).all(0))
        chosen = [(layer, head) == selected for head in heads.tolist()]
        figure.add_scatter(
            x=x[layer, heads], y=y[layer, heads], customdata=[[layer, head] for head in heads.tolist()],
            mode="markers+text" if names else "markers", name=f"layer {layer}",
            text=[theme.head_label(layer, head) * ((layer, head) in names) for head in heads.tolist()],
            textposition=[names.get((layer, head), "top center") for head in heads.tolist()],
            textfont={"size": 11}, cliponaxis=False,
            unselected={"marker": {"opacity": 0.85}} if lit is None else {},
            marker={"size": [14 if one else 9 for one in chosen],
                    **({"color": colour} if bar is None else {"color": hues[layer, heads], "coloraxis": "coloraxis"}),
                    "opacity": [0.85 if lit is None or (layer, head) in lit else 0.2 for head in heads.tolist()],
                    "line": {"width": [2.5 if one else 0 for one in chosen], "color": ink.text}},
            hovertemplate=f"<b>L%{{customdata[0]}}H%{{customdata[1]}}</b><br>{across} %{{x:.3f}}<br>"
                          f"{up} %{{y:.3f}}{told}<extra></extra>",
        )  # fmt: skip
    if bar is not None:
        figure.update_layout(coloraxis=bar)
    if edges is not None:
        rule(figure, edges[0], ink.muted, dash="dash", width=1)
        figure.add_hline(y=edges[1], line={"color": ink.muted, "dash": "dash", "width": 1})
        quiet = {"showarrow": False, "font": {"size": 11, "color": ink.muted}, "xref": "paper"}
        below, above = (f"<i>{corner}</i>" for corner in corners)
        figure.add_annotation(text=below, x=1, y=edges[1], xanchor="right", yanchor="top", **quiet)
        figure.add_annotation(text=above, x=0, y=1, yref="paper", xanchor="left", yanchor="top", **quiet)
    figure.update_layout(
        height=340, showlegend=n_layers > 1 and bar is None,
        margin={"l": 8, "r": 8, "t": 8, "b": 8}, legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip
    figure.update_xaxes(title={"text": across, "font": {"size": 12}})
    figure.update_yaxes(title={"text": up, "font": {"size": 12}})
    return figure


def _names(x: np.ndarray, y: np.ndarray, selected: Head | None) -> dict[Head, str]:
    """Where the name of each head stands, beside its point; heads whose names have no room are not in it."""
    heads: list[Head] = [(layer, head) for layer, head in np.argwhere(np.isfinite(x) & np.isfinite(y)).tolist()]
    points = {head: np.array([_share(x, head) / WIDE, _share(y, head) / HIGH]) for head in heads}
    found: dict[Head, str] = {}
    taken: list[np.ndarray] = []
    for head in sorted(heads, key=lambda head: (head != selected, head)):
        for name, away in BESIDE.items():
            at = points[head] + away
            if all((abs(at - other) >= 1).any() for other in taken):
                found[head] = name
                taken.append(at)
                break
    return found


def _share(values: np.ndarray, head: Head) -> float:
    """How far across the picture a head stands, from 0 to 1."""
    low, high = np.nanmin(values), np.nanmax(values)
    return float((values[head] - low) / (high - low)) if high > low else 0.5


def by_head(columns: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Columns [layer head] as a table: a row a head that has them all."""
    at = np.argwhere(np.logical_and.reduce([np.isfinite(values) for values in columns.values()]))
    heads = [theme.head_label(int(layer), int(head)) for layer, head in at]
    return {"head": heads} | {name: values[tuple(at.T)].tolist() for name, values in columns.items()}


def _colour_axis(label: str, low: float, high: float, colours: list[list[Any]]) -> dict[str, Any]:
    return {
        "colorscale": colours, "cmin": low, "cmax": high,
        "colorbar": {"thickness": 8, "outlinewidth": 0, "tickfont": {"size": 11}, "nticks": 5, "title": {
            "text": plain(label), "side": "right", "font": {"size": 12}}},
    }  # fmt: skip
