"""The pictures of the Phases page: curves in lanes on one axis of steps, the loss by position, and its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme
from dashboard.shared.figures import places, plain, rule, step_axis, stops
from tracer.store import nearest_row

if TYPE_CHECKING:
    import plotly.graph_objects as go

Window = tuple[int, int, int, int, int]
"""Onset, midpoint and end, and the interval of the midpoint."""
WARM = "warm-up ends"
SHORT = 12
"""Letters of a unit that a phone has room for in the title of a lane; hovering says every unit."""
LANE, FOOT, HEAD = 76, 48, 20
"""Pixels of a lane with its name, below all of them, and above them where the warm-up is named."""
SIDES = 72, 8
"""Pixels at the left, for the ends of a curve, and at the right: styles.css adds what the timeline has more."""
BAND, NAME = 0.58 * LANE, 12
"""Those of its curve alone, and of the name of a mark."""
CLOSE = 0.3
"""Of a band's height: nearer to each other, the least and the greatest value of a curve have no room for their labels,
and the ends of the band are labelled."""


def timeline(
    series: Sequence[tuple[np.ndarray, np.ndarray]],
    labels: Sequence[str],
    *,
    units: Sequence[str],
    windows: Sequence[Window | None],
    numbers: Sequence[int | None],
    bands: Sequence[np.ndarray | None] | None = None,
    step: int | None = None,
    log_x: bool = False,
    warmup: float | None = None,
    marks: Sequence[Mapping[str, float]] = (),
    beside: Sequence[Mapping[str, tuple[np.ndarray, np.ndarray]]] = (),
) -> go.Figure:
    """A lane each of (steps, values), top to bottom as given, with its range, window and interval of the date.

    `numbers` are those of events; `bands` are ends [end step]; at the right stands each value at `step`, or the last;
    a dotted line marks the end of the warm-up. `marks`: values with a name, by lane, as dotted lines where they are
    near the curve. `beside`: the same of other runs by name, by lane, dashed.
    """
    import plotly.graph_objects as go

    ink, n = theme.ink(), len(series)
    figure, shapes, texts = go.Figure(), [], []  # set once: each that is added costs as much as all before it
    for i, ((x, y), label, unit, window) in enumerate(zip(series, labels, units, windows, strict=True)):
        at, axis, number = places(x, log_x), f"y{i + 1 if i else ''}", numbers[i]
        said = f"step {window[1]:,}, 95 % interval {window[3]:,} to {window[4]:,}" if window else "no change found"
        ends, band = _ends(y), [0.0, 0.0]
        if bands is not None and (both := bands[i]) is not None and np.isfinite(both).any():
            known, band = np.isfinite(both).all(axis=0), _ends(both.ravel())
            x_band, (low_band, high_band) = at[known], both[:, known]
            figure.add_scatter(
                x=[*x_band, *x_band[::-1]], y=[*high_band, *low_band[::-1]], yaxis=axis, fill="toself", mode="none",
                fillcolor=ink.text, opacity=0.2, hoverinfo="skip", name=f"95 % of {plain(label)}",
            )  # fmt: skip
        for other, (x_other, y_other) in (beside[i] if beside else {}).items():
            figure.add_scatter(
                x=places(x_other, log_x), y=y_other, yaxis=axis, customdata=x_other, mode="lines", connectgaps=True,
                line={"color": ink.muted, "width": 1.5, "dash": "dash"}, name=f"{plain(label)} of {plain(other)}",
                hovertemplate=f"step %{{customdata:,}}: %{{y:.4g}} {unit}<extra>{plain(other)}</extra>",
            )  # fmt: skip
        figure.add_scatter(
            x=at, y=y, yaxis=axis, customdata=x, mode="lines+markers", name=plain(label),
            line={"color": ink.text, "width": 1.5}, marker={"size": 4}, connectgaps=True,
            hovertemplate=f"step %{{customdata:,}}: %{{y:.4g}} {unit}<br>changed: {said}<extra>{plain(label)}</extra>",
        )  # fmt: skip
        top = 1 - i / n
        if ends[1] - ends[0] < CLOSE * (band[1] - band[0]):
            ends = band
        figure.layout[f"yaxis{axis[1:]}"] = {
            "domain": [top - 0.94 / n, top - 0.36 / n], "tickvals": sorted(set(ends)), "tickformat": ".3g",
            "tickfont": {"size": 11}, "showgrid": False, "zeroline": False, "fixedrange": True,
        }  # fmt: skip
        if near := _near(marks[i], ends) if marks else {}:
            lowest, highest = min(*ends, *near.values()), max(*ends, *near.values())
            pad = 0.08 * (highest - lowest)
            figure.layout[f"yaxis{axis[1:]}"].range = [lowest - pad, highest + pad]
            pixels = BAND / (highest - lowest + 2 * pad)
            heights = {mark: (value - lowest + pad) * pixels for mark, value in near.items()}
            raised = _apart(heights, BAND)
            for mark, value in near.items():
                level = {"xref": "paper", "yref": axis}
                line = {"color": ink.text, "width": 1, "dash": "dot"}
                shapes.append(dict(type="line", layer="below", line=line, x0=0, x1=1, y0=value, y1=value, **level))
                texts.append(dict(
                    text=f"{plain(mark)} {theme.fmt(value)}", x=1, xanchor="right", y=value, yanchor="middle",
                    yshift=raised[mark] - heights[mark], showarrow=False, font={"size": 11}, borderpad=0,
                    bgcolor=ink.page, **level,  # else its own line strikes it through
                ))  # fmt: skip
        if window:
            first, middle, last, low, high = places([*window, *x], log_x)[:5]
            shown = {"yref": f"{axis} domain", "y0": -0.05, "y1": 1.05, "layer": "below"}
            shapes += [
                dict(
                    type="rect", x0=first, x1=last, fillcolor=ink.mark, opacity=0.22 if number else 0.1,
                    line={"width": 2 if first == last else 0, "color": ink.mark}, **shown,
                ),
                dict(
                    type="line", x0=middle, x1=middle, opacity=1 if number else 0.4,
                    line={"color": ink.mark, "width": 2}, **shown | {"layer": "above"},  # no grid splits it
                ),
                dict(type="line", x0=low, x1=high, line={"color": ink.mark, "width": 5}, **shown | {"y0": 0, "y1": 0}),
            ]  # fmt: skip
        in_title = f" ({unit})" if 0 < len(unit) <= SHORT else ""
        name = f"{f'<b>{number}</b>  ' if number else ''}{plain(label)}{in_title}"
        where = len(x) - 1 if step is None else max(0, int(np.searchsorted(x, step, "right")) - 1)
        now = f"<b>{theme.fmt(float(y[where]))}</b>" if len(y) and np.isfinite(y[where]) else ""
        place = {
            "xref": "paper",
            "yref": f"{axis} domain",
            "y": 1.05,
            "yshift": 3,
            "yanchor": "bottom",
            "showarrow": False,
            "bgcolor": ink.page,
            "borderpad": 0,
        }  # no line runs through it, nor a label of its axis
        texts += [
            dict(text=name, x=0, xanchor="left", xshift=-SIDES[0], **place),
            dict(text=now, x=1, xanchor="right", font={"size": 12}, **place),
        ]  # fmt: skip
    if warmup and n:
        at = places(np.concatenate([[warmup], *(x for x, _ in series)]), log_x)[0]
        shapes.append(
            dict(
                type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", layer="below", name=WARM,
                line={"color": ink.text, "width": 1, "dash": "dot"},
            )
        )  # fmt: skip
        texts.append(
            dict(
                text=WARM, x=np.log10(at) if log_x else at, xref="x", xanchor="left", y=1, yref="paper",
                yanchor="bottom", showarrow=False, font={"size": 11}, bgcolor=ink.page,
            )
        )  # fmt: skip
    figure.update_layout(shapes=shapes, annotations=texts)
    if step is not None and n:
        every = np.concatenate([[step], *(x for x, _ in series)])
        rule(figure, places(every, log_x)[0], ink.text)
    figure.update_layout(
        height=LANE * n + FOOT + HEAD, showlegend=False, hovermode="x",
        hoverdistance=-1, margin={"l": SIDES[0], "r": SIDES[1], "t": HEAD, "b": FOOT},
    )  # fmt: skip
    step_axis(figure, log_x, np.concatenate([x for x, _ in series]) if n else None, anchor="free", position=0)
    return figure


def _near(marks: Mapping[str, float], ends: Sequence[float]) -> dict[str, float]:
    """The marks that leave a curve between these ends its room."""
    room = (ends[1] - ends[0]) / 2
    return {name: value for name, value in marks.items() if ends[0] - room < value < ends[1] + room}


def _apart(heights: Mapping[str, float], top: float) -> dict[str, float]:
    """Pixels at which the names of marks stand, none over another, as near to their lines as that allows."""
    order = sorted(heights, key=lambda name: heights[name])
    gap, found, below = min(NAME, top / max(1, len(order) - 1)), {}, -NAME
    for name in order:
        found[name] = below = max(heights[name], below + gap)
    above = top + gap
    for name in reversed(order):
        found[name] = above = min(found[name], above - gap)
    return found


def _ends(values: np.ndarray) -> list[float]:
    finite = values[np.isfinite(values)]
    return [float(finite.min()), float(finite.max())] if finite.size else [0.0, 1.0]


def surface(
    steps: np.ndarray,
    values: np.ndarray,
    *,
    label: str,
    limits: tuple[float, float],
    signed: bool,
    window: tuple[int, int] | None = None,
    step: int | None = None,
    log_x: bool = False,
) -> go.Figure:
    """Values [step pos] as colours, steps across, positions up from 1; dashed lines mark the ends of `window`.

    A grid of colours cannot be clicked in Plotly: the points that can be stand unseen above each step.
    """
    import plotly.graph_objects as go

    ink = theme.ink()
    if log_x and len(steps) > 1 and steps[0] <= 0:
        steps, values = steps[1:], values[1:]
    n = values.shape[1]
    figure = go.Figure(
        go.Heatmap(
            x=steps, y=np.arange(1, n + 1), z=values.T.astype(np.float32), zmin=limits[0], zmax=limits[1],
            colorscale=stops("change" if signed else "score"),
            colorbar={"thickness": 8, "outlinewidth": 0, "tickfont": {"size": 11}, "nticks": 5},
            hovertemplate="step %{x:,}, position %{y}<br><b>%{z:.3f}</b> nats<extra></extra>",
        )
    )  # fmt: skip
    figure.add_scatter(
        x=steps, y=np.full(len(steps), max(1.0, n**0.5)), customdata=steps, mode="markers", hoverinfo="none",
        marker={"opacity": 0, "size": 8}, unselected={"marker": {"opacity": 0}}, showlegend=False,
    )  # fmt: skip
    for end in window or ():
        rule(figure, places([end, *steps], log_x)[0], ink.text, dash="dash", width=1)
    if step is not None:
        rule(figure, places([step, *steps], log_x)[0], ink.text)
    powers = 2 ** np.arange(int(np.log2(n)) + 1)
    figure.update_layout(
        height=300, hovermode="x", hoverdistance=-1,
        title={"text": f"{label} (nats)", "font": {"size": 13}, "x": 0, "xref": "paper", "y": 0.98},
        margin={"l": 52, "r": 8, "t": 32, "b": 44},
    )  # fmt: skip
    step_axis(figure, log_x, steps, showgrid=False)
    figure.update_yaxes(
        type="log", tickvals=powers, ticktext=[str(p) for p in powers], showgrid=False,
        title={"text": "position (log)", "font": {"size": 12}}, range=[np.log10(0.75), np.log10(n + 0.5)],
    )  # fmt: skip
    return figure


def limits(values: ArrayLike, *, signed: bool, cut: float = 1.0) -> tuple[float, float]:
    """The ends of the colours: `cut` per cent at either end are beyond them; signed ones are symmetric around 0."""
    v = np.asarray(values, np.float64)
    v = v[np.isfinite(v)]
    if not v.size:
        return (-1.0, 1.0) if signed else (0.0, 1.0)
    lo, hi = (float(q) for q in np.percentile(v, [cut, 100 - cut]))
    if signed:
        hi = max(abs(lo), abs(hi)) or 1.0
        return -hi, hi
    return lo, hi if hi > lo else lo + 1.0


def path(
    steps: np.ndarray,
    points: np.ndarray,
    shares: np.ndarray,
    *,
    window: tuple[int, int] | None = None,
    step: int | None = None,
) -> go.Figure:
    """Points [step 2] joined in the order of steps, light to dark; `shares` [2] of the variance name the axes.

    The way within `window` is thicker.
    """
    import plotly.graph_objects as go

    ink, (x, y) = theme.ink(), np.asarray(points).T
    chosen = nearest_row(steps, step)
    inside = np.zeros(len(steps), bool) if window is None else (steps >= window[0]) & (steps <= window[1])
    named = {0, len(steps) - 1, chosen, *np.flatnonzero(inside)[[0, -1] if inside.any() else []].tolist()}
    figure = go.Figure()
    figure.add_scatter(x=x[inside], y=y[inside], mode="lines", hoverinfo="skip", line={"color": ink.mark, "width": 7})
    figure.add_scatter(
        x=x, y=y, customdata=steps, mode="lines+markers+text", textposition="top right", textfont={"size": 11},
        text=[f"<b>{s:,}</b>" if i in named else "" for i, s in enumerate(steps)], cliponaxis=False,
        line={"color": ink.muted, "width": 1}, unselected={"marker": {"opacity": 1}},
        marker={
            "size": [13 if i == chosen else 8 for i in range(len(steps))], "opacity": 1,
            "color": np.arange(len(steps)), "colorscale": stops("attention", 0.22),
            "line": {"width": [2 if i == chosen else 0 for i in range(len(steps))], "color": ink.text},
        },
        hovertemplate="step %{customdata:,}<br>%{x:.3f}, %{y:.3f}<extra></extra>",
    )  # fmt: skip
    figure.update_layout(height=400, showlegend=False, margin={"l": 8, "r": 24, "t": 16, "b": 8})
    for update, name, share in zip((figure.update_xaxes, figure.update_yaxes), ("1st", "2nd"), shares, strict=True):
        update(title={"text": f"{name} component, {100 * share:.1f} % of the variance", "font": {"size": 12}})
    return figure
