"""How sure a mean over few sequences is."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from tracer.measures import SE, SEQUENCES, Measure

if TYPE_CHECKING:
    import xarray as xr

NORMAL = 1.959964
"""The 97.5 % quantile of the normal distribution."""
STEPS = 6
"""Of Newton's, the first from the normal distribution's; of 2 degrees, the slowest, the fifth moves it by 7e-8."""
SIMPSON = np.array([1, *[4, 2] * 99, 4, 1]) / 600
"""Weights of 201 points from 0 to 1."""


@cache
def student(free: float) -> float:
    """The 97.5 % quantile of Student's t, of `free` >= 1 degrees of freedom, to 1e-9 below a hundred thousand.

    scipy.special has it too, and takes 0.25 s to import, which the first page of a server would wait for.
    With t = sqrt(free) tan(angle) the density is that of cos(angle)^(free - 1), flat enough for Simpson's rule; its
    integral bends down, so that Newton's steps come from below.
    """
    half = math.sqrt(math.pi) / 2 * math.exp(math.lgamma(free / 2) - math.lgamma((free + 1) / 2))
    angle = math.atan(NORMAL / math.sqrt(free))
    for _ in range(STEPS):
        density = np.cos(np.linspace(0, angle, len(SIMPSON))) ** (free - 1)
        angle += float((0.95 * half - SIMPSON @ density * angle) / density[-1])
    return math.sqrt(free) * math.tan(angle)


def student_tails(t: Float[np.ndarray, "*any"], free: int) -> Float[np.ndarray, "*any"]:
    """The probability of Student's t, of so many degrees of freedom, beyond t or -t."""
    from scipy.special import stdtr

    return np.asarray(2 * stdtr(free, -np.abs(t)))


def margins(trace: xr.Dataset, measure: str) -> np.ndarray | None:
    """Half of the 95 % interval of each value of a measure; None where its standard error was not recorded.

    Source: Student 1908, of so many sequences as its probe had; the normal distribution where a trace does not say it.
    """
    if (name := measure + SE) not in trace:
        return None
    n = int(trace[name].attrs.get(SEQUENCES, 0))
    return (student(n - 1) if n > 1 else NORMAL) * trace[name].values.astype(float)


def within(
    values: Float[np.ndarray, "*any"], around: Float[np.ndarray, "*any"], measure: Measure
) -> Float[np.ndarray, "2 *any"]:
    """Both ends of intervals around values of a measure, none beyond what it can be.

    Of few sequences Student's interval is wide (of 2 it is 25 standard errors): that of a share would leave 0 to 1.
    A value beyond that range is in its interval all the same.
    """
    low, high = values - around, values + around
    if measure.low is not None:
        low = np.maximum(low, np.minimum(measure.low, values))
    if measure.high is not None:
        high = np.minimum(high, np.maximum(measure.high, values))
    return np.stack([low, high])
