"""What the Find page draws, packed: heads with their measures, and counted tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures.payload import pack, visible


@dataclass(frozen=True)
class Tally:
    """A token, how often it was counted, its share of the count, and its share of all text."""

    token: str
    count: int
    share: float
    usual: float


def ranking(measures: Mapping[str, ArrayLike], there: ArrayLike) -> bytes:
    """Measures [layer head] of the heads that exist."""
    heads = np.argwhere(np.asarray(there, bool)).astype(np.uint16)
    values = np.array([np.asarray(v, np.float32)[heads[:, 0], heads[:, 1]] for v in measures.values()], np.float32)
    return pack({"measures": list(measures)}, heads=heads, values=values.reshape(len(measures), len(heads)))


def tally(names: Sequence[str], lists: Sequence[Sequence[Tally]], looks: int, counts: ArrayLike, top: float) -> bytes:
    """Lists of counted tokens, and how often each score from 0 to `top` occurs."""
    rows = [[{**asdict(one), "token": visible(one.token, 24)} for one in tallies] for tallies in lists]
    header = {"names": list(names), "lists": rows, "looks": looks, "top": top}
    return pack(header, counts=np.asarray(counts, np.float32))
