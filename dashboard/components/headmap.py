"""Layers x heads as a coloured table: one number a head; a click takes a head into focus where a page asks for it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme
from dashboard.components.host import Part, controlled

Head = tuple[int, int]
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
    log: bool = False,
    bare: bool = False,
    selected: Head | None = None,
    on_change: Callable[[Head], None] | None = None,
) -> None:
    """Draw values [layer head]; heads in `off` are crossed out, those in `marked` [layer head] get a dot.

    `notes` [layer head] are said of a head under the pointer, beside its number. With `log` colour is a power of ten;
    `bare` is without its legend, for all but one of several that share it. With `on_change` a click selects.
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
        "log": log,
        "bare": bare,
        "pick": on_change is not None,
    }

    def read(head: Any) -> Head:
        return int(head[0]), int(head[1])

    controlled(_PART, None, cue, key=key, current=selected and list(selected), read=read, on_change=on_change)
