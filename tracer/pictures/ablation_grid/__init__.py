"""Layers x heads as switches: click, drag to paint, whole rows and columns; after a pause Python hears the set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import ArrayLike

from tracer.measures.aliases import Head
from tracer.pictures.picture import Picture, as_grid, as_head
from tracer.pictures.scales import Scale


def picture(values: ArrayLike, *, off: Iterable[Sequence[int]] = (), scale: Scale | None = None) -> Picture:
    """Switches over values [layer head]; picks the heads that are off, sorted."""

    def read(heads: Any) -> list[Head]:
        return sorted(map(as_head, heads))

    cue = {"values": as_grid(values), "scale": (scale or Scale("Score")).payload()}
    return Picture("ablation_grid", cue, None, read(off), read, 124 + 44 * len(cue["values"]))
