"""Curves of different units under each other on one axis of steps, each with the window in which it turned.

Pure numpy, like the payloads it is one of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures import payload

Window = tuple[int, int, int]
"""Onset, midpoint and end."""


def timeline(
    series: Sequence[tuple[ArrayLike, ArrayLike]],
    labels: Sequence[str],
    *,
    units: Sequence[str],
    windows: Sequence[Window | None],
    numbers: Sequence[int | None] | None = None,
) -> bytes:
    """A lane each of (steps, values), top to bottom as given, with its own range; `numbers` are those of events."""
    if not len(series) == len(labels) == len(units) == len(windows):
        raise ValueError(f"{len(series)} curves, {len(labels)} labels, {len(units)} units, {len(windows)} windows")
    known = [(np.asarray(x, np.int64), np.asarray(y, np.float64)) for x, y in series]
    steps = np.unique(np.concatenate([x for x, _ in known])) if known else np.zeros(0, np.int64)
    lines = np.full((len(known), len(steps)), payload.MISSING, np.uint16)
    ranges = []
    for line, (x, y) in zip(lines, known, strict=True):
        finite = y[np.isfinite(y)]
        lo, hi = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        hi = hi if hi > lo else lo + 1.0
        line[np.searchsorted(steps, x)] = payload.quantise_linear(y, lo, hi)
        ranges.append([lo, hi])
    header = {
        "labels": list(labels),
        "units": list(units),
        "windows": [w and list(w) for w in windows],
        "ranges": ranges,
        "numbers": list(numbers) if numbers is not None else [None] * len(known),
    }
    return payload.pack(header, steps=steps.astype(np.float64), lines=lines)
