"""Heads as points, one measure against another: a click takes a head into focus."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme
from dashboard.components.host import Part, controlled

Head = tuple[int, int]
_PART = Part("scatter")


def scatter(
    x: ArrayLike,
    y: ArrayLike,
    *,
    key: str,
    x_scale: theme.Scale,
    y_scale: theme.Scale,
    selected: Head | None = None,
    corners: tuple[str, str] = ("", ""),
    height: int = 320,
    on_change: Callable[[Head], None] | None = None,
) -> Head | None:
    """Draw a point a head of x and y [layer head], left out where either is nan; returns the head in focus.

    Dashed lines stand at each scale's `chance`; `corners` name what lies beyond them below right, and above left.
    """
    a, b = np.asarray(x, float), np.asarray(y, float)
    if a.shape != b.shape or a.ndim != 2:
        raise ValueError(f"x {a.shape} and y {b.shape} must both be [layer head]")

    def read(head: Any) -> Head:
        return int(head[0]), int(head[1])

    there = np.argwhere(np.isfinite(a) & np.isfinite(b))
    cue = {
        "points": [[int(layer), int(head), float(a[layer, head]), float(b[layer, head])] for layer, head in there],
        "x": x_scale.payload(),
        "y": y_scale.payload(),
        "corners": list(corners),
        "colours": theme.layer_colours(max(8, a.shape[0]) if a.shape[0] > 8 else 8),
        "height": height,
    }
    return controlled(_PART, None, cue, key=key, current=selected and list(selected), read=read, on_change=on_change)
