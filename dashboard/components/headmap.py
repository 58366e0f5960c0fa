"""Layers x heads as a coloured table: one number a head, nothing to press."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme
from dashboard.components.host import Part, controlled

_PART = Part("headmap")


def headmap(
    values: ArrayLike,
    *,
    key: str,
    title: str,
    scale: theme.Scale,
    off: Iterable[Sequence[int]] = (),
    marked: ArrayLike | None = None,
    notes: Sequence[Sequence[str]] | None = None,
) -> None:
    """Draw values [layer head]; heads in `off` are crossed out, those in `marked` [layer head] get a dot.

    `notes` [layer head] are said of a head under the pointer, beside its number.
    """
    v = np.asarray(values, np.float64)
    if v.ndim != 2:
        raise ValueError(f"values must be [layer head], got shape {v.shape}")
    cue = {
        "values": [[float(x) if np.isfinite(x) else None for x in row] for row in v],
        "title": title,
        "scale": scale.payload(),
        "off": [list(map(int, head)) for head in off],
        "marked": None if marked is None else np.asarray(marked, bool).tolist(),
        "notes": notes,
    }
    controlled(_PART, None, cue, key=key, current=None, read=lambda v: v, on_change=None)
