"""A value at each step and position of the context as one picture; pure numpy, like the payloads it is one of."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures import payload


def surface(steps: ArrayLike, values: ArrayLike) -> bytes:
    """Values [step pos], packed; steps at which nothing was measured are left out, position j is written j + 1."""
    x, v = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if v.ndim != 2 or len(v) != x.size:
        raise ValueError(f"values must be [step pos] over {x.size} steps, got shape {v.shape}")
    known = np.isfinite(v).any(axis=1)
    x, v = x[known], v[known]
    lo, hi = (float(np.nanmin(v)), float(np.nanmax(v))) if v.size else (0.0, 1.0)
    hi = hi if hi > lo else lo + 1.0
    return payload.pack({"lo": lo, "hi": hi}, steps=x, cells=payload.quantise_linear(v, lo, hi))


def limits(values: ArrayLike, *, signed: bool, cut: float = 1.0) -> tuple[float, float]:
    """The ends of the colours: `cut` per cent at either end are beyond them; signed ones are symmetric around 0."""
    v = np.asarray(values, np.float64)
    v = v[np.isfinite(v)]
    if not v.size:
        return (-1.0, 1.0) if signed else (0.0, 1.0)
    lo, hi = (float(q) for q in np.percentile(v, [cut, 100 - cut]))
    if signed:
        hi = max(abs(lo), abs(hi)) or 1.0
        return -hi, hi
    return lo, hi if hi > lo else lo + 1.0
