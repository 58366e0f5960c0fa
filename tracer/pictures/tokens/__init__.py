"""A text as its tokens, each coloured by a change; a click chooses one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures.payload import visible
from tracer.pictures.picture import Picture, as_json
from tracer.pictures.scales import Scale

LINE = 70
"""Characters of one, about."""


def picture(
    strings: Sequence[str],
    before: ArrayLike,
    after: ArrayLike,
    *,
    selected: int,
    scale: Scale,
    names: tuple[str, str] | None = ("loss before", "loss after"),
) -> Picture:
    """Tokens coloured by after - before (NaN: no value); picks a position.

    `names` are those of both values under the pointer; None: the change alone is told.
    """
    if not np.shape(before) == np.shape(after) == (len(strings),):
        raise ValueError(f"{len(strings)} tokens, but values of shape {np.shape(before)} and {np.shape(after)}")
    cue = {
        "tokens": [visible(s) for s in strings],
        "breaks": [i for i, s in enumerate(strings) if "\n" in s],
        "before": as_json(before),
        "after": as_json(after),
        "scale": scale.payload(),
        "names": names,
    }
    lines = 1 + sum(map(len, strings)) // LINE
    return Picture("tokens", cue, None, selected, int, 110 + 26 * lines)
