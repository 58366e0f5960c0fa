"""Where a curve over training turns: the window of a phase change.

1. Keep the finite values; the level before and the level after are the medians of their first and last 10 %.
2. There is a change when the levels differ by at least 3 times the spread of the noisier plateau.
3. Onset, midpoint and end are the first steps past 10 %, 50 % and 90 % of the way.

Source: ours; Olsson et al. 2022 marked the window by eye. It reads one curve: look at loss, in-context learning score
and induction together before calling it a phase change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

SHARE = 0.1
MIN_PLATEAU = 3
SPREADS = 3.0


@dataclass(frozen=True)
class PhaseChange:
    """A move from one level to another; the steps are recorded steps, not interpolated."""

    onset: int
    midpoint: int
    end: int
    before: float
    """Level before: median of the first plateau."""
    after: float
    """Level after: median of the last plateau."""
    spread: float
    """Largest minus smallest value of the noisier plateau."""


def phase_change(steps: ArrayLike, values: ArrayLike) -> PhaseChange | None:
    """The steps between which a curve moves from its first level to its last; None when it does not move.

    Source: ours, see the module. A plateau has at least 3 snapshots, so fewer than 7 values give None. Snapshots count
    equally: on the usual schedule, log-spaced and then even, this reads the curve against ln(step). A steady slope is
    also a move, with onset and end far apart.
    """
    steps, values = np.asarray(steps), np.asarray(values, dtype=float)
    if steps.shape != values.shape or steps.ndim != 1:
        raise ValueError(f"steps {steps.shape} and values {values.shape} must be two lists of the same length")
    steps, values = steps[np.isfinite(values)], values[np.isfinite(values)]
    size = max(MIN_PLATEAU, round(SHARE * len(values)))
    if len(values) <= 2 * size:
        return None
    first, last = values[:size], values[-size:]
    before, after = float(np.median(first)), float(np.median(last))
    spread = float(max(np.ptp(first), np.ptp(last)))
    move = after - before
    if move == 0 or abs(move) < SPREADS * spread:
        return None
    progress = (values - before) / move
    onset, midpoint, end = (int(steps[np.argmax(progress > share)]) for share in (0.1, 0.5, 0.9))
    return PhaseChange(onset, midpoint, end, before, after, spread)
