"""Does a step of a curve stand out from everything else that the curve does?

A fit finds a step in much that has none: a walk whose steps have heavy tails, a smoothed walk, a bump, one period of a
sine. All of them move elsewhere as they do at the step. So a step counts where the curve holds a level before it and
another after it:

1. the step is `STANDS` times as large as the range of either side's running means; or the noise around both levels is
   white, and the levels are `APART` standard errors apart;
2. of a curve within 0 and 1, the step is also `STANDS_ODDS` times as large as either side's range in log odds: a score
   that wanders near its ends rests there without having arrived;
3. where the sides are no white noise and one record makes most of the step, that jump is beyond the tail of the others.

Source: ours; the limits were found by simulation (`benchmarks/truth/phases.py`). The tail is Pareto's, whose logarithms
are exponential: the ratio of their spacings follows F (Renyi 1953). The ratio of white noise is von Neumann's, 1941.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.measures.aliases import Floats

STANDS = 6.0
"""The step is so many times what either side does."""
STANDS_ODDS = 1.5
"""The same in log odds, where scores near their ends move more."""
APART = 8.0
"""Standard errors between two levels in white noise."""
WHITE = 1.5
"""Von Neumann's ratio of white noise is 2, that of a walk near 0."""
MANY = 20
"""The highest of e times as many heads must stand out by one in so many more."""
MEANS = 12
"""A running mean takes this part of the record."""
TAIL, RARE = 0.2, 0.05
"""The share of the moves that say what tail they have, and how rare the jump must be beside them."""
FEW = 30
"""Moves below which a tail is not known."""
ODDS = 1e-4
"""Scores nearer to 0 or 1 than this count as this."""
ELSEWHERE = "times its other moves"
"""With how many before it, and how many are asked after it."""
BACK = "it goes back: an excursion"
JUMPS = "one jump among others that are nearly as large"


def why_not(step: Floats, y: Floats, before: NDArray[np.bool_], after: NDArray[np.bool_], tried: int = 1) -> str:
    """What keeps a step of the curve y from standing out, empty if it does; `step` is its shape from 0 to 1.

    `before` and `after` are the records on either side of it. `tried` heads, of which this is the strongest, ask more.
    """
    k = window(len(y))
    more = 1 + np.log(tried) / MANY
    ratio, size = _ratio(step, y, before, after, k)
    white = _is_white(y - size * step, before, after)
    if ratio < STANDS * more and not (white and _errors_apart(step, y, before, after) > APART * more):
        return (
            BACK if goes_back(y, before, after, k) else f"its step is {ratio:.1f} {ELSEWHERE}, not {STANDS * more:.1f}"
        )
    if y.min() >= 0 and y.max() <= 1:
        odds = np.clip(y, ODDS, 1 - ODDS)
        in_odds, _ = _ratio(step, np.log(odds / (1 - odds)), before, after, k)
        if in_odds < STANDS_ODDS * more:
            return f"in log odds its step is {in_odds:.1f} {ELSEWHERE}, not {STANDS_ODDS * more:.1f}"
    return JUMPS if not white and _is_one_jump_of_many(y, before, after, size, tried) else ""


def window(records: int) -> int:
    """Records of a running mean."""
    return max(2, round(records / MEANS))


def _ratio(step: Floats, y: Floats, before: NDArray[np.bool_], after: NDArray[np.bool_], k: int) -> tuple[float, float]:
    """Size of the step over the larger range of running means on either side of it without it, and that size."""
    left, right = min(k, int(before.sum())), min(k, int(after.sum()))
    rise = step[after][:right].mean() - step[before][-left:].mean()
    size = float((y[after][:right].mean() - y[before][-left:].mean()) / rise)
    rest = y - size * step
    ranges = [float(np.ptp(_means(rest[side], one))) for side, one in ((before, left), (after, right))]
    return abs(size) / max(*ranges, 1e-9 * float(np.ptp(y)), 1e-300), size


def _means(values: Floats, k: int) -> Floats:
    return np.convolve(values, np.full(k, 1 / k), "valid")


def _is_white(rest: Floats, before: NDArray[np.bool_], after: NDArray[np.bool_]) -> bool:
    """Is what is left on both sides white noise around two levels?"""
    sides = [rest[side] - rest[side].mean() for side in (before, after)]
    spread = sum(float((side**2).sum()) for side in sides)
    return sum(float((np.diff(side) ** 2).sum()) for side in sides) > WHITE * spread


def _errors_apart(step: Floats, y: Floats, before: NDArray[np.bool_], after: NDArray[np.bool_]) -> float:
    """The difference of the levels in standard errors, each side with its own noise."""
    sides = [y[side] for side in (before, after)]
    error = sum(float(side.var(ddof=1)) / len(side) for side in sides)
    return abs(float(sides[1].mean() - sides[0].mean())) / max(error**0.5, 1e-300)


def goes_back(y: Floats, before: NDArray[np.bool_], after: NDArray[np.bool_], k: int) -> bool:
    """Is the curve later halfway back, or was it already halfway there before? `k`: records of a running mean."""
    left, right = (_means(y[side], min(k, int(side.sum()))) for side in (before, after))
    size = right[0] - left[-1]
    return bool(((right - left[-1]) / size < 0.5).any() or ((left - left[-1]) / size > 0.5).any())


def _is_one_jump_of_many(
    y: Floats, before: NDArray[np.bool_], after: NDArray[np.bool_], size: float, tried: int
) -> bool:
    """Does one record make most of the step, and is its jump within the tail of the others?"""
    moves = np.abs(np.diff(y))
    last, first = int(np.flatnonzero(before)[-1]), int(np.flatnonzero(after)[0])
    inside = slice(min(last, first - 1), max(last + 1, first))  # a step at once may have its middle on a record
    largest = float(moves[inside].max())
    if len(moves) < FEW or largest < abs(size) / 2:
        return False
    others = np.sort(np.delete(moves, inside.start + int(moves[inside].argmax())))[::-1]
    top = others[: 1 + max(5, round(TAIL * len(moves)))]
    top = top[top > 0]
    if len(top) < 3:
        return False
    spacings = np.arange(2, len(top) + 1) * np.log(top[:-1] / top[1:])
    beyond = np.log(max(largest / top[0], 1.0))
    return bool(tried * (1 + beyond / max(float(spacings.sum()), 1e-9)) ** (1 - len(top)) > RARE)
