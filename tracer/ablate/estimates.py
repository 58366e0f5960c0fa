"""A mean over sequences, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

BOOTSTRAPS = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean over sequences with its 95 % interval (percentile bootstrap, Efron 1979); nan bounds for one sequence."""

    mean: float
    low: float
    high: float
    n: int


def estimate(per_sequence: Float[np.ndarray, " n"], seed: int = 0) -> Estimate:
    """Mean of one value a sequence, with the 2.5 % and 97.5 % percentiles of the means of resampled sequences."""
    values, n = np.asarray(per_sequence, np.float64), len(per_sequence)
    if n < 2:
        return Estimate(float(values.mean()), float("nan"), float("nan"), n)
    picks = np.random.default_rng(seed).integers(n, size=(BOOTSTRAPS, n))
    low, high = np.percentile(values[picks].mean(1), [2.5, 97.5])
    return Estimate(float(values.mean()), float(low), float(high), n)
