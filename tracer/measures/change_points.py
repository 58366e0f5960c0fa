"""Where a curve over training changes from one level to another, and how surely that can be dated.

1. Without a change, a curve is a line plus one exponential decay or growth: a drift, or a fall that slows down. With
   one, an S-shaped step (a logistic, or at once) is added to it.
2. Its noise is of its own kind: each value keeps a share of the one before, from none (white) to all (a random walk).
3. There is a change when the step lowers the squared error by more than chance does: (n - 1) ln(without / with), each
   at its best line, decay, noise and step, is over `SURE`; for the highest of many curves, over more.
4. Much that is no change would pass that. So the step must stand out from what the curve does elsewhere
   (`tracer.measures.plateaus`), and be none that the end of a warm-up makes; else it is not dated, and why is said.
5. A date is the middle of the step; its interval holds all middles that fit nearly as well (`NEARLY`), and the records
   between which the curve itself is halfway.

Source: a likelihood ratio that holds for stationary and for integrated noise, as Perron and Yabu 2009 ask of tests for
shifts in a trend; its inversion for the interval, Eo and Morley 2015. The shapes, and all limits, found by simulation,
are ours: docs/truth.md lists the kinds of curves of which at most 5 % are dated without a change, and those of which
more are. Olsson et al. 2022 marked the window by eye. It reads one curve: look at loss, in-context learning score and
induction together before calling it a phase change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.measures.aliases import Floats
from tracer.measures.plateaus import goes_back, why_not, window

SURE = 20.0
"""Of noise, walks, drifts and decays none passes it in more than 5 % of curves. Others do: see `plateaus`."""
NEARLY = 4.0
"""Middles within it of the best are in the interval: of dated steps and sigmoids it then holds 95 % or more."""
ROUNDING = 1e-9
"""Share of a squared error by which a fit must be better than those before it, for rounding differs by machine."""
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
SOON, SETTLED = 0.15, 3.0
"""A decay with a shorter time constant is over after so many of them; what it did is no part of the level before."""
EARLY = 0.1
"""A step that begins within this share of the run may be the end of a warm-up, where nobody knows of one."""
WARMUPS = (0.02, 0.04, 0.07, 0.1, 0.14)
"""Lengths of a warm-up that nobody knows, as shares of the run."""
WARMING = "it changes as the learning rate warms up"
BEHIND = "a decay behind a warm-up would look the same"


@dataclass(frozen=True)
class PhaseChange:
    """A move from one level to another. Steps are those of the fitted curve, rounded: seldom recorded ones."""

    onset: int
    """10 % of the way."""
    midpoint: int
    """Half of the way."""
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


@dataclass(frozen=True)
class Reading:
    """What a curve says of a change: its date, or why the step that a fit finds has none."""

    change: PhaseChange | None = None
    """None where the curve has no date."""
    undated: str = ""
    """Empty where there is a change, and where the fit finds no step."""


def phase_change(
    steps: ArrayLike, values: ArrayLike, least: float = 0.0, *, tried: int = 1, warmup: float | None = None
) -> PhaseChange | None:
    """Where a curve moves from one level to another; None where no more than drift, decay and noise is to be seen.

    Source: ours, see the module. Fewer than 9 values give None, and so does a step smaller than `least`; `tried` and
    `warmup` as in `readings`.
    """
    steps, values = np.asarray(steps), np.asarray(values, float)
    if steps.shape != values.shape or steps.ndim != 1:
        raise ValueError(f"steps {steps.shape} and values {values.shape} must be two lists of the same length")
    return phase_changes(steps, values[None], [least], tried=tried, warmup=warmup)[0]


def phase_changes(
    steps: ArrayLike, curves: ArrayLike, least: ArrayLike = 0.0, *, tried: ArrayLike = 1, warmup: float | None = None
) -> list[PhaseChange | None]:
    """`phase_change` of each of curves [curve step], faster than one at a time; only finite values are read.

    `least` and `tried` are one number, or one for each curve.
    """
    return [one.change for one in readings(steps, curves, least, tried=tried, warmup=warmup)]


def readings(
    steps: ArrayLike,
    curves: ArrayLike,
    least: ArrayLike = 0.0,
    *,
    tried: ArrayLike = 1,
    warmup: float | None = None,
    known: bool = False,
) -> list[Reading]:
    """`phase_changes`, with the reason where the fit finds a step that is not dated.

    `tried`: of how many curves this one is the highest, which asks more of it. `warmup`: the step from which the
    learning rate was full, 0 for no warm-up; None where nobody knows. `known`: that there is a change is known from the
    same curve on another scale, and only its date is asked for.
    """
    x, y = np.asarray(steps, float), np.asarray(curves, float)
    limits, among = np.broadcast_to(np.asarray(least, float), len(y)), np.broadcast_to(np.asarray(tried), len(y))
    found = [Reading()] * len(y)
    there = np.isfinite(y)
    for kept in np.unique(there, axis=0):
        rows = np.flatnonzero((there == kept).all(axis=1))
        if kept.sum() >= FEWEST:
            read = _readings(*_shortened(x[kept], y[rows][:, kept]), among[rows], warmup, known)
            for row, one in zip(rows, read, strict=True):
                small = one.change and abs(one.change.after - one.change.before) < limits[row]
                found[row] = Reading() if small else one
    return found


def _shortened(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most MOST values: means of as many neighbours each."""
    every = -(-len(x) // MOST)
    starts = np.arange(0, len(x), every)
    sizes = np.diff(starts, append=len(x))
    return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts, axis=1) / sizes


def _readings(x: Floats, y: Floats, tried: NDArray[np.int_], warmup: float | None, known: bool) -> list[Reading]:
    """Of curves [curve step], all finite."""
    fits, limits = _fits(x, y), SURE + 2 * np.log(tried)
    found = [Reading()] * len(y)
    rows = [
        row for row, fit in enumerate(fits)
        # a step of the fit that a decay beside it takes back is none of the curve
        if fit.gain > limits[row] and (fit.levels[1] - fit.levels[0]) / fit.height > 1 / 3
    ]  # fmt: skip
    warming = [""] * len(rows) if known else _warming(x, y[rows], [fits[row] for row in rows], warmup, limits[rows])
    for row, why in zip(rows, warming, strict=True):
        fit, values = fits[row], y[row]
        kept = x >= x[0] + fit.settled
        if (fit.before & kept).sum() < 2 * EDGE or goes_back(values, fit.before, fit.after, window(len(x))):
            kept = x >= x[0]
        if not known and not why:
            why = why_not(fit.shape[kept], values[kept], fit.before[kept], fit.after[kept], int(tried[row]))
        if why:
            found[row] = Reading(undated=why)
            continue
        low, high = _widened(x, values, fit.before & kept, fit.after, fit.low, fit.high)
        half = fit.width / 2
        onset, middle, end = (round(at) for at in (fit.middle - half, fit.middle, fit.middle + half))
        found[row] = Reading(PhaseChange(onset, middle, end, round(low), round(high), *fit.levels))
    return found


@dataclass(frozen=True)
class _Fit:
    """The best step on top of a line and one exponential, for one curve."""

    gain: float
    """n ln(squared error without / with)."""
    without: float
    """That error without a step, of the curve as a share of its range."""
    height: float
    middle: float
    width: float
    shape: Floats
    low: float
    """All middles that fit nearly as well, and one place more on either side, begin here."""
    high: float
    settled: float
    """Steps until an exponential that falls early is over; 0 where there is none."""
    before: NDArray[np.bool_]
    """Records up to 10 % of the way."""
    after: NDArray[np.bool_]
    levels: tuple[float, float]
    """Means of the 3 values next to the step on either side."""


def _fits(x: Floats, y: Floats) -> list[_Fit]:
    """Each step tried for each curve, on top of each exponential, under each noise."""
    shapes, middles, widths = _steps(x)
    u, n = (x - x[0]) / (x[-1] - x[0]), len(x) - 1
    scaled, scale = _scaled(y)
    without = np.full((len(y), 1), np.inf)
    with_step = np.full((len(y), len(middles)), np.inf)
    heights, bends = np.ones_like(with_step), np.zeros(with_step.shape, np.int8)
    falls = DECAYS[::-1]  # of equals the first holds: no decay where none is needed, else a slow one
    columns = [*(np.exp((u - 1) / share) for share in GROWTHS), *(np.exp(-u / share) for share in falls)]
    for i, bend in enumerate(columns):
        for keep in KEEPS:
            q, rest, floor = _without(np.stack([u**0, u, bend], 1), scaled, keep)
            step = shapes[1:] - keep * shapes[:-1]
            step -= q @ (q.T @ step)
            error, length = (rest**2).sum(0)[:, None] + floor, np.maximum((step**2).sum(0), 1e-9)
            along = rest.T @ step
            left = np.maximum(error - along**2 / length, floor)
            better = left < with_step * (1 - ROUNDING)
            without, with_step = np.minimum(without, error), np.where(better, left, with_step)
            heights, bends = np.where(better, along / length, heights), np.where(better, i, bends)
    gains, places = n * np.log(without / with_step), np.unique(_middles(x))
    over = [0.0] * len(GROWTHS) + [SETTLED * share if share <= SOON else 0.0 for share in falls]
    found: list[_Fit] = []
    for row, (values, gain) in enumerate(zip(y, gains, strict=True)):
        at = int(gain.argmax())
        near = np.searchsorted(places, middles[gain >= gain[at] - NEARLY])
        before, after = x <= middles[at] - widths[at] / 2, x >= middles[at] + widths[at] / 2
        found.append(
            _Fit(
                float(gain[at]), float(without[row, 0]), float(heights[row, at] * scale[row]), float(middles[at]),
                float(widths[at]), shapes[:, at], float(places[near.min() - 1]),
                float(places[near.max() + 1]), over[bends[row, at]] * float(x[-1] - x[0]),
                before, after, (float(values[before][-EDGE:].mean()), float(values[after][:EDGE].mean())),
            )
        )  # fmt: skip
    return found


def _scaled(y: Floats) -> tuple[Floats, Floats]:
    """Each curve from 0 on, as a share of its range, and that range."""
    size = np.ptp(y, axis=1)
    scale = np.where(size > 0, size, 1.0)
    return (y - y[:, :1]) / scale[:, None], scale


def _without(columns: Floats, y: Floats, keep: float) -> tuple[Floats, Floats, float]:
    """A basis of these columns, the curves without them, and the squared error below which no fit is better."""
    flat, rest = columns[1:] - keep * columns[:-1], y.T[1:] - keep * y.T[:-1]
    q = _basis(flat)
    return q, rest - q @ (q.T @ rest), len(rest) * FINEST**2 * ((1 - keep) ** 2 + SMOOTH**2)


def _warming(x: Floats, y: Floats, fits: list[_Fit], warmup: float | None, limits: Floats) -> list[str]:
    """Why the steps of curves y may be the warm-up's: each begins within it, or a decay behind one looks like it."""
    length = float(x[-1] - x[0])
    if warmup is None:
        early = [fit.middle - fit.width / 2 <= x[0] + EARLY * length for fit in fits]
        ends = [share * length for share in WARMUPS]
    else:
        early, ends = [True] * len(fits), [warmup - float(x[0])]
    said = [""] * len(fits)
    if not any(early) or ends[0] <= 0:
        return said
    behind = _behind_warmup(x, y, ends)
    for row, fit in enumerate(fits):
        if warmup is not None and fit.low <= warmup:
            said[row] = WARMING
        elif early[row] and fit.gain + (len(x) - 1) * np.log(behind[row] / fit.without) <= limits[row]:
            said[row] = BEHIND
    return said


def _behind_warmup(x: Floats, y: Floats, ends: list[float]) -> Floats:
    """Squared error of each curve around a line and a decay that sets in as a learning rate warms up until `ends`."""
    scaled, _ = _scaled(y)
    at, length = x - x[0], x[-1] - x[0]
    least = np.full(len(y), np.inf)
    for end in ends:
        learned = np.where(at < end, at**2 / (2 * end), at - end / 2) / length  # the learning rate, summed
        for share in DECAYS:
            columns = np.stack([at**0, at / length, np.exp(-learned / share)], 1)
            for keep in KEEPS:
                _, rest, floor = _without(columns, scaled, keep)
                least = np.minimum(least, (rest**2).sum(0) + floor)
    return least


def _widened(
    x: Floats, y: Floats, before: NDArray[np.bool_], after: NDArray[np.bool_], low: float, high: float
) -> tuple[float, float]:
    """An interval, with the records between which the curve itself is halfway: a rise that slows down is no logistic.

    Halfway between its levels at the step, and between those of the first half before it and the last half after it.
    """
    first, last = int(np.flatnonzero(before)[-1]), int(np.flatnonzero(after)[0])
    left, right = y[before], y[after]
    near, far = (left[-EDGE:], right[:EDGE]), (left[: -(-len(left) // 2)], right[len(right) // 2 :])
    for levels in (near, far):
        above = y[first : last + 1] > (levels[0].mean() + levels[1].mean()) / 2
        crossed = first + np.flatnonzero(np.diff(above))
        if len(crossed):
            low, high = min(low, float(x[crossed[0]])), max(high, float(x[crossed[-1] + 1]))
    return low, high


def _middles(x: Floats) -> Floats:
    """The records that may be the middle of a step, and the middles between two."""
    inner = x[EDGE - 1 : -EDGE + 1]
    return np.sort(np.concatenate([inner, (inner[1:] + inner[:-1]) / 2]))


def _steps(x: Floats) -> tuple[Floats, Floats, Floats]:
    """Steps from 0 to 1 [value step], the middle of each, and how long it takes from 10 % to 90 % of its way."""
    middles = _middles(x)[1:-1]
    widths = np.array([0.0, *np.geomspace(np.median(np.diff(x)), WIDEST * (x[-1] - x[0]), 7)])
    middle, width = (grid.ravel() for grid in np.meshgrid(middles, widths))
    inside = (middle - width / 2 >= x[1]) & (middle + width / 2 <= x[-2])
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
