"""Layers x heads as a coloured table: one number a head; a click takes a head into focus where a page asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from tracer.measures.aliases import Head
from tracer.pictures.picture import Picture, as_grid, as_head
from tracer.pictures.scales import Scale


def picture(
    values: ArrayLike,
    *,
    title: str,
    scale: Scale,
    off: Iterable[Sequence[int]] = (),
    marked: ArrayLike | None = None,
    notes: Sequence[Sequence[str]] | None = None,
    log: bool = False,
    bare: bool = False,
    selected: Head | None = None,
) -> Picture:
    """Values [layer head]; heads in `off` are crossed out, those in `marked` [layer head] get a dot.

    `notes` [layer head] are said of a head under the pointer, beside its number. With `log` colour is a power of ten;
    `bare` is without its legend, for all but one of several that share it. With `selected` a click picks a head.
    """
    cue = {
        "values": as_grid(values),
        "title": title,
        "scale": scale.payload(),
        "off": [list(map(int, head)) for head in off],
        "marked": None if marked is None else np.asarray(marked, bool).tolist(),
        "notes": notes,
        "log": log,
        "bare": bare,
        "pick": selected is not None,
    }
    return Picture("headmap", cue, None, selected, as_head, 85 + 39 * len(cue["values"]))
