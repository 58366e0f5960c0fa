"""The way of a run through a plane, a point a step; pure numpy, like the payloads it is one of."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures import payload


def path(steps: ArrayLike, points: ArrayLike, shares: ArrayLike) -> bytes:
    """Points [step 2] joined in the order of steps; `shares` [2] of the variance name the axes."""
    x, p = np.asarray(steps, np.float64), np.asarray(points, np.float64)
    if p.shape != (x.size, 2):
        raise ValueError(f"points must be [step 2] over {x.size} steps, got shape {p.shape}")
    return payload.pack({"shares": [float(s) for s in np.asarray(shares)]}, steps=x, points=p.astype(np.float32))
