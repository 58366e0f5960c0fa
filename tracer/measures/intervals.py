"""How sure a mean over few sequences is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from tracer.measures import SE, SEQUENCES

if TYPE_CHECKING:
    import xarray as xr

NORMAL = 1.959964
"""The 97.5 % quantile of the normal distribution."""
STUDENT = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
)  # fmt: skip
"""That of Student's t with 1, 2, ... degrees of freedom."""


def student(free: int) -> float:
    """The 97.5 % quantile of Student's t; beyond the table by the first term of Cornish and Fisher's expansion."""
    return STUDENT[free - 1] if free <= len(STUDENT) else NORMAL + (NORMAL**3 + NORMAL) / (4 * free)


def student_tails(t: Float[np.ndarray, "*any"], free: int) -> Float[np.ndarray, "*any"]:
    """The probability of Student's t, of so many degrees of freedom, beyond t or -t.

    Source: Abramowitz and Stegun 26.7.3 and 26.7.4, exact; to 1e-15, so that what is smaller may come out as 0.
    """
    angle = np.arctan(np.abs(t) / free**0.5)
    sin, cos = np.sin(angle), np.cos(angle)
    odd = free % 2
    term = cos * (free > 1) if odd else np.ones_like(sin)
    total = term.copy()
    for k in range(3 if odd else 2, free - 1, 2):
        term = term * cos**2 * (k - 1) / k
        total += term
    within = 2 / np.pi * (angle + sin * total) if odd else sin * total
    return np.asarray(np.clip(1 - within, 0, 1))


def margins(trace: xr.Dataset, measure: str) -> np.ndarray | None:
    """Half of the 95 % interval of each value of a measure; None where its standard error was not recorded.

    Source: Student 1908, of so many sequences as its probe had; the normal distribution where a trace does not say it.
    """
    if (name := measure + SE) not in trace:
        return None
    n = int(trace[name].attrs.get(SEQUENCES, 0))
    return (student(n - 1) if n > 1 else NORMAL) * trace[name].values.astype(float)
