"""What the figures of several pages share: text that is never markup, and an axis of steps."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme

if TYPE_CHECKING:
    import plotly.graph_objects as go


def plain(text: str) -> str:
    """A text as Plotly shows it, which takes <b>, <a> and &lt; for markup."""
    return html.escape(text, quote=False)


def places(steps: ArrayLike, log: bool) -> np.ndarray:
    """Where steps stand: on a logarithmic axis, 0 stands at the first step after it."""
    at = np.asarray(steps, float)
    return np.maximum(at, at[at > 0].min(initial=np.inf)) if log and (at > 0).any() else at


def step_axis(figure: go.Figure, log: bool, **options: Any) -> None:
    """Name and scale the x axis."""
    title = {"text": "step (log)" if log else "step", "font": {"size": 12}, "standoff": 6}
    kind = {"type": "log", "dtick": 1} if log else {"type": "linear"}
    figure.update_xaxes(title=title, tickformat=",d", zeroline=False, **kind, **options)


def rule(figure: go.Figure, x: float, colour: str, **options: Any) -> None:
    """A vertical line over the whole height."""
    line = {"color": colour, "width": 1.5, **options}
    figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="paper", line=line)


def stops(meaning: str, dark: bool, low: float = 0.0) -> list[list[Any]]:
    """A palette as Plotly's colour scale, without the part of it below `low`."""
    colours = theme.palette(meaning)["dark" if dark else "light"]
    colours = colours[round(low * (len(colours) - 1)) :]
    return [[i / (len(colours) - 1), colour] for i, colour in enumerate(colours)]
