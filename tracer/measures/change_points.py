"""Where a curve over training changes from one level to another, and how surely that can be dated.

1. Without a change, a curve is a line plus one exponential decay or growth: a drift, or a fall that slows down. With
   one, an S-shaped step (a logistic, or at once) is added to it.
2. Its noise is of its own kind: each value keeps a share of the one before, from none (white) to all (a random walk).
3. There is a change when the step lowers the squared error by more than chance does: (n - 1) ln(without / with), each
   at its best line, decay, noise and step, is over `SURE`, of which noise, walks, drifts and decays pass 5 % at most.
4. A date is the middle of the step; its interval holds all middles that fit nearly as well (`NEARLY`).

Source: a likelihood ratio that holds for stationary and for integrated noise, as Perron and Yabu 2009 ask of tests for
shifts in a trend; its inversion for the interval, Eo and Morley 2015. The shapes, and both limits, found by simulation,
are ours. Olsson et al. 2022 marked the window by eye. It reads one curve: look at loss, in-context learning score and
induction together before calling it a phase change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

SURE = 22.0
"""Of noise, walks, drifts and decays none passes it in more than 5 % of curves: `benchmarks/truth/phases.py`."""
NEARLY = 4.0
"""Middles within it of the best are in the interval: of dated steps and sigmoids it then holds 95 % or more."""
FINEST = 0.03
"""Differences of shape below this share of a curve's range are none: decays are never exactly exponential."""
SMOOTH = 0.3
"""How much such a difference changes from one value to the next, as a share of itself."""
EDGE = 3
"""Values that must lie on either side of a change."""
FEWEST = 9
"""Values without which nothing is said."""
MOST = 200
"""Longer curves are read as means of neighbours, so many of them."""
WIDEST = 0.5
"""A step that takes a larger share of the run, from 10 % to 90 % of its way, is a slope and no event."""
KEEPS = (0.0, 0.4, 0.7, 0.9, 1.0)
"""Shares of a deviation that the next value keeps."""
DECAYS, GROWTHS = np.geomspace(0.004, 1, 16), np.array([0.05, 0.12, 0.3, 0.8])
"""Time constants, as shares of the run."""


@dataclass(frozen=True)
class PhaseChange:
    """A move from one level to another. Steps are those of the fitted curve, rounded: seldom recorded ones."""

    onset: int
    """10 % of the way."""
    midpoint: int
    end: int
    """90 % of the way."""
    low: int
    """The 95 % interval of the midpoint begins here; never narrower than the gap between two recorded steps."""
    high: int
    """And ends here."""
    before: float
    """Mean of the last 3 values up to the onset."""
    after: float
    """Mean of the first 3 values from the end on."""

    def around(self, steps: ArrayLike) -> tuple[int, int]:
        """The last of these steps before the onset, or the first of all, and the first from the end on, or the last."""
        given = np.asarray(steps).tolist()
        start = max((step for step in given if step < self.onset), default=given[0])
        return start, min((step for step in given if step >= self.end), default=given[-1])

    def overlaps(self, other: PhaseChange) -> bool:
        """Do the intervals of the dates share a step? If not, one midpoint is before the other's, whichever is true."""
        return self.low <= other.high and other.low <= self.high


def phase_change(steps: ArrayLike, values: ArrayLike, least: float = 0.0) -> PhaseChange | None:
    """Where a curve moves from one level to another; None where no more than drift, decay and noise is to be seen.

    Source: ours, see the module. Fewer than 9 values give None, and so does a step smaller than `least`.
    """
    steps, values = np.asarray(steps), np.asarray(values, float)
    if steps.shape != values.shape or steps.ndim != 1:
        raise ValueError(f"steps {steps.shape} and values {values.shape} must be two lists of the same length")
    return phase_changes(steps, values[None], [least])[0]


def phase_changes(steps: ArrayLike, curves: ArrayLike, least: ArrayLike = 0.0) -> list[PhaseChange | None]:
    """`phase_change` of each of curves [curve step], faster than one at a time; only finite values are read.

    `least` is one number, or one for each curve.
    """
    x, y = np.asarray(steps, float), np.asarray(curves, float)
    limits = np.broadcast_to(np.asarray(least, float), len(y))
    found: list[PhaseChange | None] = [None] * len(y)
    known = np.isfinite(y)
    for kept in np.unique(known, axis=0):
        rows = np.flatnonzero((known == kept).all(axis=1))
        if kept.sum() >= FEWEST:
            for row, change in zip(rows, _changes(*_shortened(x[kept], y[rows][:, kept])), strict=True):
                found[row] = change if change and abs(change.after - change.before) >= limits[row] else None
    return found


def _shortened(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most MOST values: means of as many neighbours each."""
    every = -(-len(x) // MOST)
    starts = np.arange(0, len(x), every)
    sizes = np.diff(starts, append=len(x))
    return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts, axis=1) / sizes


def _changes(x: Floats, y: Floats) -> list[PhaseChange | None]:
    """Of curves [curve step], all finite."""
    gains, heights, middles, widths = _gains(x, y)
    places = np.unique([x[EDGE - 1], *middles, x[-EDGE]])
    found: list[PhaseChange | None] = []
    for values, gain, height in zip(y, gains, heights, strict=True):
        best = int(gain.argmax())
        near = np.searchsorted(places, middles[gain >= gain[best] - NEARLY])
        low, high = places[max(near.min() - 1, 0)], places[min(near.max() + 1, len(places) - 1)]
        middle, half = middles[best], widths[best] / 2
        before, after = values[x <= middle - half][-EDGE:].mean(), values[x >= middle + half][:EDGE].mean()
        # a step of the fit that a decay beside it takes back is none of the curve
        real = gain[best] > SURE and (after - before) / height[best] > 1 / 3
        onset, mid, end, low, high = (round(float(at)) for at in (middle - half, middle, middle + half, low, high))
        found.append(PhaseChange(onset, mid, end, low, high, float(before), float(after)) if real else None)
    return found


def _gains(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """n ln(without / with) of each step tried for each curve, its height, its middle and its width."""
    shapes, middles, widths = _steps(x)
    u, n = (x - x[0]) / (x[-1] - x[0]), len(x) - 1
    size = np.ptp(y, axis=1)
    scale = np.where(size > 0, size, 1.0)[:, None]
    y = (y - y[:, :1]) / scale
    without = np.full((len(y), 1), np.inf)
    with_step = np.full((len(y), len(middles)), np.inf)
    heights = np.ones_like(with_step)
    for bend in (*(np.exp(-u / share) for share in DECAYS), *(np.exp((u - 1) / share) for share in GROWTHS)):
        for keep in KEEPS:
            flat, rest, step = (z[1:] - keep * z[:-1] for z in (np.stack([u**0, u, bend], 1), y.T, shapes))
            q = _basis(flat)
            rest, step = rest - q @ (q.T @ rest), step - q @ (q.T @ step)
            floor = n * FINEST**2 * ((1 - keep) ** 2 + SMOOTH**2)
            error, length = (rest**2).sum(0)[:, None] + floor, np.maximum((step**2).sum(0), 1e-9)
            along = rest.T @ step
            left = np.maximum(error - along**2 / length, floor)
            better = left < with_step
            without, with_step = np.minimum(without, error), np.where(better, left, with_step)
            heights = np.where(better, along / length, heights)
    return n * np.log(without / with_step), heights * scale, middles, widths


def _steps(x: Floats) -> tuple[Floats, Floats, Floats]:
    """Steps from 0 to 1 [value step], the middle of each, and how long it takes from 10 % to 90 % of its way."""
    inner = x[EDGE - 1 : -EDGE + 1]
    middles = np.sort(np.concatenate([inner[1:-1], (inner[1:] + inner[:-1]) / 2]))
    widths = np.array([0.0, *np.geomspace(np.median(np.diff(x)), WIDEST * (x[-1] - x[0]), 7)])
    middle, width = (grid.ravel() for grid in np.meshgrid(middles, widths))
    inside = (width == 0) | ((middle - width / 2 >= x[1]) & (middle + width / 2 <= x[-2]))
    middle, width = middle[inside], width[inside]
    steep = 2 * np.log(9) / np.maximum(width, 1e-6 * (x[-1] - x[0]))
    return 1 / (1 + np.exp(-np.clip((x[:, None] - middle) * steep, -60, 60))), middle, width


def _basis(columns: Floats) -> Floats:
    """Orthonormal vectors of the same span."""
    left, size, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, size > 1e-9 * size[0]]


def slope(loss: ArrayLike, octaves: float = 1.0) -> Floats:
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


def path(vectors: ArrayLike) -> tuple[Floats, Floats]:
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


def before_and_after(start: ArrayLike, end: ArrayLike) -> Floats:
    """(end - start) / |end - start|: the direction in which a phase change moved the losses.

    Source: Olsson et al. 2022, before-and-after vector. An ablation at its end whose change in loss has a negative dot
    product with it undoes the phase change. All 0 where nothing moved.
    """
    moved = np.asarray(end, float) - np.asarray(start, float)
    length = float(np.linalg.norm(moved))
    return moved / length if length else moved
