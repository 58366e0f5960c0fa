"""Layers x heads as switches: click, drag to paint, whole rows and columns; after a pause Python hears the set."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme
from dashboard.components.host import Part, controlled

Head = tuple[int, int]
_PART = Part("ablation_grid")


def ablation_grid(
    values: ArrayLike,
    *,
    key: str,
    off: Iterable[Sequence[int]] = (),
    scale: theme.Scale | None = None,
    on_change: Callable[[list[Head]], None] | None = None,
) -> list[Head]:
    """Draw switches over values [layer head]; returns the heads that are off, sorted."""
    v = np.asarray(values, np.float64)
    if v.ndim != 2:
        raise ValueError(f"values must be [layer head], got shape {v.shape}")

    def read(heads: Any) -> list[Head]:
        return sorted((int(layer), int(head)) for layer, head in heads)

    cue = {
        "values": [[float(x) if np.isfinite(x) else None for x in row] for row in v],
        "scale": (scale or theme.Scale("Score")).payload(),
    }
    return controlled(_PART, None, cue, key=key, current=read(off), read=read, on_change=on_change)
