"""A text as its tokens, each coloured by a change; a click chooses one."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from dashboard import theme
from dashboard.components.host import Part, controlled
from tracer.pictures.payload import visible

_PART = Part("tokens")


def tokens(
    strings: Sequence[str],
    before: ArrayLike,
    after: ArrayLike,
    *,
    key: str,
    selected: int,
    scale: theme.Scale,
    names: tuple[str, str] | None = ("loss before", "loss after"),
    on_change: Callable[[int], None] | None = None,
) -> int:
    """Draw tokens coloured by after - before (NaN: no value); returns the position in force.

    `names` are those of both values under the pointer; None: the change alone is told.
    """
    one, two = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if one.shape != (len(strings),) or two.shape != (len(strings),):
        raise ValueError(f"{len(strings)} tokens, but values of shape {one.shape} and {two.shape}")
    cue = {
        "tokens": [visible(s) for s in strings],
        "breaks": [i for i, s in enumerate(strings) if "\n" in s],
        "before": [float(v) if np.isfinite(v) else None for v in one],
        "after": [float(v) if np.isfinite(v) else None for v in two],
        "scale": scale.payload(),
        "names": names,
    }
    return controlled(_PART, None, cue, key=key, current=selected, read=int, on_change=on_change)
