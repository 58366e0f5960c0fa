"""Two patterns side by side, with their difference where the tokens are the same; one cross hair for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tracer.measures.aliases import Head
from tracer.pictures import payload
from tracer.pictures.payload import visible
from tracer.pictures.picture import Picture, as_cell

Cell = tuple[int, int, int]
"""query, key, panel."""


@dataclass(frozen=True)
class Side:
    """A window of one head's pattern, with the tokens of both axes; row i is query `starts[0]` + i."""

    title: str
    pattern: ArrayLike
    """[query_pos key_pos]"""
    queries: Sequence[str]
    keys: Sequence[str]
    causal: bool = True
    starts: tuple[int, int] = (0, 0)


def same_tokens(a: Side, b: Side) -> bool:
    """Does each cell of one mean the same as that cell of the other? Only then is there a difference to draw."""
    return (list(a.queries), list(a.keys), a.starts) == (list(b.queries), list(b.keys), b.starts)


def picture(blob: bytes, *, head: Head | None = None, locked: Cell | None = None) -> Picture:
    """`pack(...)`, drawn; picks a (query, key, panel) to hold, or None.

    A cell under the mouse of another part is taken for one of the first panel, which a scrubber on the page drives when
    its `head` is known.
    """
    cue = {"head": head and list(head)}
    return Picture("versus", cue, blob, locked, as_cell)


def pack(a: Side, b: Side) -> bytes:
    """Both patterns to 1/131068; where the tokens are the same, the browser subtracts them (to 1/65534)."""
    same = same_tokens(a, b)
    change = np.asarray(b.pattern, np.float64) - np.asarray(a.pattern, np.float64) if same else np.zeros(1)
    header = {"same": same, "top": float(np.nanmax(np.abs(change), initial=0)), "sides": [_header(a), _header(b)]}
    return payload.pack(header, a=_codes(a), b=_codes(b))


def _header(side: Side) -> dict[str, Any]:
    return {
        "title": " ".join(visible(word, 60) for word in side.title.split(" ")),
        "starts": list(side.starts),
        "causal": side.causal,
        "tokens": [visible(t) for t in side.queries],
        "keys": [visible(t) for t in side.keys],
    }


def _codes(side: Side) -> np.ndarray:
    return payload.quantise_pattern(side.pattern, side.queries, side.keys, of=f"{side.title}: ")
