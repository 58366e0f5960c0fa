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
from numpy.typing import ArrayLike, NDArray

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

    def overlaps(self, other: PhaseChange) -> bool:
        """Do the windows share a step? If not, one had gone 90 % of its way before the other had gone 10 %.

        Source: ours. Then no choice of a threshold between these two shares turns their order around.
        """
        return self.onset <= other.end and other.onset <= self.end


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


def slope(loss: ArrayLike, octaves: float = 1.0) -> NDArray[np.float64]:
    """d loss / d ln(position) at each position of loss [step pos]: the least-squares line through its neighbours.

    Source: Olsson et al. 2022, derivative of the 2D in-context plot. The neighbours, ours, are those less than
    `octaves` doublings away, and at least one on either side; entry j has j + 1 tokens behind it: its position.
    """
    y = np.asarray(loss, float)
    if y.ndim != 2 or y.shape[1] < 2:
        raise ValueError(f"loss must be [step pos] with at least 2 positions, got shape {y.shape}")
    n = y.shape[1]
    position = np.arange(1, n + 1)
    x, farther = np.log(position), np.maximum.outer(position, position)
    near = (farther < 2**octaves * np.minimum.outer(position, position)) | (np.abs(position - position[:, None]) <= 1)
    weights = np.zeros((n, n))
    for j, others in enumerate(near):
        centred = x[others] - x[others].mean()
        weights[j, others] = centred / (centred**2).sum()
    return y @ weights.T


def path(vectors: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each row of vectors [step feature] on the first two principal components [step 2], and their variance shares.

    Source: Olsson et al. 2022, who take the losses of single tokens. The signs are ours: the last row lies right of the
    first on the first component, and the row farthest from 0 lies above it on the second.
    """
    v = np.asarray(vectors, float)
    if v.ndim != 2 or min(v.shape) < 2:
        raise ValueError(f"vectors must be [step feature], at least 2 of each, got shape {v.shape}")
    left, strength, _ = np.linalg.svd(v - v.mean(0), full_matrices=False)
    points = left[:, :2] * strength[:2]
    points *= np.where([points[-1, 0] < points[0, 0], points[np.abs(points[:, 1]).argmax(), 1] < 0], -1.0, 1.0)
    total = float((strength**2).sum())
    return points, strength[:2] ** 2 / total if total else np.zeros(2)


def breadth(vectors: ArrayLike, inside: NDArray[np.bool_]) -> float:
    """The share of the whole path's width, its first component, that these rows of vectors span."""
    across = path(vectors)[0][:, 0]
    part, whole = across[inside], np.ptp(across)
    return float(np.ptp(part) / whole) if part.size and whole else 0.0


def before_and_after(start: ArrayLike, end: ArrayLike) -> NDArray[np.float64]:
    """(end - start) / |end - start|: the direction in which a phase change moved the losses.

    Source: Olsson et al. 2022, before-and-after vector. An ablation at its end whose change in loss has a negative dot
    product with it undoes the phase change. All 0 where nothing moved.
    """
    moved = np.asarray(end, float) - np.asarray(start, float)
    length = float(np.linalg.norm(moved))
    return moved / length if length else moved
