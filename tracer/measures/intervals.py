"""How sure a mean over few sequences is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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


def margins(trace: xr.Dataset, measure: str) -> np.ndarray | None:
    """Half of the 95 % interval of each value of a measure; None where its standard error was not recorded.

    Source: Student 1908, of so many sequences as its probe had; the normal distribution where a trace does not say it.
    """
    if (name := measure + SE) not in trace:
        return None
    n = int(trace[name].attrs.get(SEQUENCES, 0))
    return (student(n - 1) if n > 1 else NORMAL) * trace[name].values.astype(float)
