"""A mean over sequences, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import sqrt

import numpy as np
from jaxtyping import Float

from tracer.measures.intervals import student, student_tails

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


def within(found: Estimate, least: float = 0.0, most: float = 1.0) -> Estimate:
    """The same, of a number that is never outside of these bounds: cut to them, an interval holds it as often."""
    low, high = (float(np.clip(end, least, most)) for end in (found.low, found.high))
    return replace(found, low=low, high=high)


@cache
def _subsets(n: int) -> Float[np.ndarray, "subset n"]:
    """1 where a subset has a value; of all subsets but the empty one."""
    return ((np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1).astype(np.float64)


def p_value(per_sequence: Float[np.ndarray, "*any n"]) -> Float[np.ndarray, "*any"]:
    """That sequences without an effect on average give a mean this far from 0: two-sided; nan for one sequence.

    The largest of: the exact share of sign flips of up to 12 values (Fisher 1935), of which the interval of `estimate`
    is the inversion, and never less than their smallest, 2^(1 - n); Student 1908; and Student of Hall's transformation
    (1992, JRSSB 54, 221), which takes skewness off. Student alone is right in the middle and wrong in the tail that a
    correction for many tries needs, where values are not normal. What this holds for was attacked in docs/truth.md:
    symmetric values of any tails, and a skewness of up to 0.5; not the skewness of an exponential distribution.
    """
    values = np.asarray(per_sequence, np.float64)
    n = values.shape[-1]
    if n < 2:
        return np.full(values.shape[:-1], np.nan)
    mean, sd = values.mean(-1), values.std(-1, ddof=1)
    there = np.where(sd > 0, sd, 1)
    t = np.where(sd > 0, mean / there * sqrt(n), np.copysign(np.inf, mean))
    skew = ((values - mean[..., None]) ** 3).mean(-1) / there**3
    finite = np.where(np.isfinite(t), t, 0)
    hall = finite + skew * (2 * finite**2 + 1) / (6 * sqrt(n)) + skew**2 * finite**3 / (27 * n)
    hall = np.where(np.isfinite(t), np.maximum(hall * np.sign(t), 0), np.inf)
    found = np.maximum(student_tails(np.asarray(np.minimum(np.abs(t), hall)), n - 1), smallest_p(n))
    found = np.where(mean == 0, 1.0, found)
    if n <= max(SUBSETS):
        sums = values @ _subsets(n).T
        fewer = np.minimum((sums <= 0).sum(-1), (sums >= 0).sum(-1)) + 1  # and the empty subset, whose sum is 0
        found = np.maximum(found, np.minimum(1, fewer / 2 ** (n - 1)))
    return np.asarray(np.where(np.isnan(mean), np.nan, found))


def smallest_p(n: int) -> float:
    """The least that `p_value` can be for n sequences: all of one sign, as one of 2^n signs and its opposite are."""
    return 2.0 ** (1 - n)
