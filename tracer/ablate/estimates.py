"""A mean over sequences, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import erfc, sqrt

import numpy as np
from jaxtyping import Float

from tracer.measures.intervals import NORMAL, student

SUBSETS = range(6, 13)
"""So many values have enough subsets for an interval of 95 %, and not too many to take them all."""


@dataclass(frozen=True)
class Estimate:
    """A mean over sequences with its 95 % interval; nan bounds for one sequence."""

    mean: float
    low: float
    high: float
    n: int


def estimate(per_sequence: Float[np.ndarray, " n"]) -> Estimate:
    """Mean of one value a sequence, and the interval in which that of all sequences is 95 times in 100.

    Source: of 6 to 12 values Hartigan 1969 (JASA 64, 1303): the means of their subsets, at most 2.5 % of them left
    out at either end; exact for any symmetric distribution, where Student's t holds too often if tails are heavy
    (97.2 % of effects on 8 sequences). Of others Student 1908. Percentiles of resampled means (Efron 1979) are too near
    for few sequences: of effects on 8 or 32 of them they held the truth less often, and no better where effects are
    skewed.
    """
    values, n = np.asarray(per_sequence, np.float64), len(per_sequence)
    mean = float(values.mean())
    if n < 2:
        return Estimate(mean, float("nan"), float("nan"), n)
    if n in SUBSETS:
        members, outer = _subsets(n), 2**n // 40
        means = np.sort(members @ values / members.sum(1))
        return Estimate(mean, min(mean, float(means[outer - 1])), max(mean, float(means[-outer])), n)
    half = student(n - 1) * float(values.std(ddof=1)) / n**0.5
    return Estimate(mean, mean - half, mean + half, n)


def ratio(above: Float[np.ndarray, " n"], below: Float[np.ndarray, " n"]) -> Estimate:
    """Mean of one value a sequence over the mean of another, with the interval of `estimate`.

    Source: Cochran 1977, ratio estimators: the ratio R varies as the mean of (above - R below) / mean(below) does.
    """
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    found = above.mean() / below.mean()
    return estimate(found + (above - found * below) / below.mean())


@cache
def _subsets(n: int) -> Float[np.ndarray, "subset n"]:
    """1 where a subset has a value; of all subsets but the empty one."""
    return ((np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1).astype(np.float64)


def p_value(
    mean: Float[np.ndarray, "*any"], low: Float[np.ndarray, "*any"], high: Float[np.ndarray, "*any"]
) -> Float[np.ndarray, "*any"]:
    """That a true mean of 0 gives one this far from 0, by a normal distribution as wide as the 95 % interval.

    Two-sided; nan without an interval, 1 where it has no width.
    """
    sd = (high - low) / (2 * NORMAL)
    z = np.divide(mean, sd, out=np.zeros_like(sd), where=sd != 0)
    return np.vectorize(erfc, otypes=[float])(np.abs(z) / sqrt(2))
