"""The parts of `change_points` by cases worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tracer.measures import change_points as parts
from tracer.measures.change_points import MOST, SURE

TEN = np.arange(10.0)


def test_records_and_the_places_between_are_middles() -> None:
    """The third record from either end is the first and the last, so that three lie on each side."""
    assert parts._middles(TEN).tolist() == [2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7]
    assert parts._middles(TEN**2)[:4].tolist() == [4, 6.5, 9, 12.5]


def test_steps_at_once_and_ever_wider_ones() -> None:
    """Seven widths from the usual gap to half of the run, in equal ratios, as far as they fit between the second record
    and the last but one; each a logistic that takes its width from 10 % to 90 %."""
    shapes, middles, widths = parts._steps(TEN)
    assert np.unique(widths[middles == 4.5]) == pytest.approx([0, *(4.5 ** (i / 6) for i in range(7))])
    assert sorted(set(middles)) == [2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5]
    assert widths[middles == 2.5].max() < 3 < widths[middles == 3.0].max() < 4
    assert widths[middles == 6.5].max() < 3
    for shape, middle, width in zip(shapes.T, middles, widths, strict=True):
        if width == 0:
            np.testing.assert_allclose(shape, np.where(middle == TEN, 0.5, middle < TEN), atol=1e-9)
            continue
        steep = 2 * np.log(9) / width
        np.testing.assert_allclose(shape, 1 / (1 + np.exp(-(TEN - middle) * steep)), atol=1e-12)


@pytest.mark.parametrize(
    ("n", "every"), [(9, 1), (MOST, 1), (MOST + 1, 2), (2 * MOST, 2), (2 * MOST + 1, 3), (5 * MOST - 3, 5)]
)
def test_a_long_curve_is_means_of_as_few_neighbours_as_it_takes(n: int, every: int) -> None:
    x, y = np.arange(float(n)), np.stack([np.arange(float(n)) ** 2, -np.arange(float(n))])
    short_x, short_y = parts._shortened(x, y)
    assert MOST == 200 and len(short_x) == -(-n // every) <= MOST
    pieces = [slice(at, at + every) for at in range(0, n, every)]
    np.testing.assert_allclose(short_x, [x[piece].mean() for piece in pieces])
    np.testing.assert_allclose(short_y, np.transpose([y[:, piece].mean(1) for piece in pieces]))


def test_an_interval_reaches_over_where_the_curve_is_halfway() -> None:
    """Between the records at which it crosses the middle of its levels, near the step and far from it."""
    y = np.array([0, 0, 0, 0, 0.2, 0.6, 0.8, 1, 1, 1.0])
    before, after = TEN <= 3, TEN >= 7
    assert parts._widened(TEN, y, before, after, 4.5, 4.5) == (4, 5)
    assert parts._widened(TEN, y, before, after, 3, 8) == (3, 8)  # it only grows
    assert parts._widened(TEN, 1 - y, before, after, 4.5, 4.5) == (4, 5)
    rising, x = np.array([0, 0, 0, 0, 0.2, 0.6, 0.8, 1, 2, 3, 3, 3.0]), np.arange(12.0)
    assert parts._widened(x, rising, x <= 3, x >= 6, 4.5, 4.5) == (4.5, 6)  # (.8 + 1 + 2) / 6, and 3 / 2 is beyond
    assert parts._widened(x, rising, x <= 3, x >= 9, 4.5, 4.5) == (4.5, 8)
    slow = np.array([0, 0.4, 0, 0, 0, 1.2, 2.2, 2, 2, 4, 4, 4.0])
    assert parts._widened(x, slow, x <= 3, x >= 6, 4.5, 4.5) == (4, 6)  # near half way is 1.1, far 2.1
    flat = np.zeros(10)
    assert parts._widened(TEN, flat, before, after, 4.5, 4.5) == (4.5, 4.5)


def test_curves_are_shares_of_their_range() -> None:
    scaled, scale = parts._scaled(np.array([[2.0, 4.0, 6.0], [1.0, 1.0, 1.0], [0.75, 0.25, 0.5]]))
    assert scale.tolist() == [4, 1, 0.5]
    np.testing.assert_allclose(scaled, [[0, 0.5, 1], [0, 0, 0], [0, -1, -0.5]])


@pytest.mark.parametrize("keep", [0.0, 0.4, 1.0])
def test_what_is_left_beside_columns_whose_errors_keep_a_share(keep: float) -> None:
    """Least squares of y[t] - keep y[t-1] on the columns treated alike (Cochrane and Orcutt 1949), by numpy's own."""
    rng = np.random.default_rng(0)
    columns, y = np.stack([TEN**0, TEN, np.exp(-TEN)], 1), rng.normal(size=(2, 10))
    q, rest, floor = parts._without(columns, y, keep)
    flat, wanted = columns[1:] - keep * columns[:-1], (y[:, 1:] - keep * y[:, :-1]).T
    fitted = flat @ np.linalg.lstsq(flat, wanted, rcond=1e-9)[0]
    np.testing.assert_allclose(rest, wanted - fitted, atol=1e-10)
    np.testing.assert_allclose(q.T @ q, np.eye(q.shape[1]), atol=1e-12)
    assert q.shape[1] == (2 if keep == 1 else 3)  # what is constant is gone then
    assert floor == pytest.approx(9 * 0.03**2 * ((1 - keep) ** 2 + 0.3**2))


def test_the_best_step_of_a_clean_curve() -> None:
    x = np.arange(0, 400.0, 10)
    y = np.stack([np.where(x < 195, 1.0, 3.0), np.where(x < 95, 5.0, 2.0)])
    first, second = parts._fits(x, y)
    assert (first.middle, first.width, second.middle, second.width) == (195, 0, 95, 0)
    assert first.levels == (1, 3) and second.levels == (5, 2)
    assert first.height == pytest.approx(2, rel=0.01) and second.height == pytest.approx(-3, rel=0.01)
    assert (first.before.sum(), first.after.sum(), second.before.sum()) == (20, 20, 10)
    assert (first.low, first.high) == (190, 200) and (second.low, second.high) == (90, 100)  # one place more
    assert min(first.gain, second.gain) > SURE and first.settled == 0
    doubled = parts._fits(2 * x, 7 * y - 4)[0]  # neither units nor zero of either axis matter
    assert (doubled.middle, doubled.low, doubled.high) == (390, 380, 400)
    assert doubled.gain == pytest.approx(first.gain) and doubled.levels == (3, 17)


def test_a_decay_that_is_over_early_is_no_part_of_the_level_before() -> None:
    x = np.arange(0, 1000.0, 10)
    (fit,) = parts._fits(x, (5 * np.exp(-x / 50) + (x > 605))[None])
    assert fit.middle == 605 and 3 * 0.03 * 990 < fit.settled < 3 * 0.08 * 990
    (late,) = parts._fits(x, (5 * np.exp(-x / 600) + (x > 605))[None])
    assert late.middle == 605 and late.settled == 0  # it goes on all through the run


def test_an_interval_by_a_record_more_or_less_of_each_level() -> None:
    """Levels near: the last three before, the first three after. Far: the first half before, the last half after, the
    larger half before and the larger after. Of several crossings the first and the last count."""
    before, after = TEN <= 4, TEN >= 6

    def half(left: slice, right: slice) -> float:
        return float(y[before][left].mean() + y[after][right].mean()) / 2

    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(300):
        y = np.where(TEN <= 4, 0.0, 1.0) + rng.normal(size=10)
        levels = half(slice(2, 5), slice(0, 3)), half(slice(0, 3), slice(2, 4))
        crossed = [at for at in (4, 5) for level in levels if (y[at] > level) != (y[at + 1] > level)]
        low, high = min([5.2, *crossed]), max([4.8, *(at + 1 for at in crossed)])
        assert parts._widened(TEN, y, before, after, 5.2, 4.8) == (low, high)
        seen.add((low, high))
    assert {(4, 5), (4, 6), (5, 6), (5.2, 4.8)} <= seen
    wavy = np.array([0, 0, 0, 1, 0, 1, 0, 1, 1, 1.0])
    assert parts._widened(TEN, wavy, TEN <= 2, TEN >= 7, 4, 4) == (2, 7)


def test_what_a_decay_behind_a_warm_up_leaves() -> None:
    """By numpy's least squares, over all lengths of the decay and all noises, with a floor; steps begin anywhere."""
    x, rng = np.array([5.0, 7, 10, 15, 16, 20, 27, 30, 33, 41, 44, 45]), np.random.default_rng(2)
    y = rng.normal(size=(2, 12)).cumsum(1)
    u, share_of = (x - 5) / 40, [(row - row[0]) / (row.max() - row.min()) for row in y]
    for ends in ([8.0], [4.0, 16.0]):
        least = [np.inf, np.inf]
        for end in ends:
            rate = np.minimum(np.arange(0, 40.001, 0.001) / end, 1)
            summed = np.concatenate([[0], np.cumsum((rate[1:] + rate[:-1]) / 2)]) * 0.001  # the learning rate
            learned = np.interp(x - 5, np.arange(0, 40.001, 0.001), summed) / 40
            for decay in np.geomspace(0.004, 1, 16):
                columns = np.stack([np.ones(12), u, np.exp(-learned / decay)], 1)
                for keep in (0, 0.4, 0.7, 0.9, 1):
                    flat = columns[1:] - keep * columns[:-1]
                    for row, values in enumerate(share_of):
                        wanted = values[1:] - keep * values[:-1]
                        rest = wanted - flat @ np.linalg.lstsq(flat, wanted, rcond=1e-9)[0]
                        floor = 11 * 0.03**2 * ((1 - keep) ** 2 + 0.3**2)
                        least[row] = min(least[row], float((rest**2).sum()) + floor)
        np.testing.assert_allclose(parts._behind_warmup(x, y, ends), least, rtol=1e-5)


def fit(middle: float, width: float = 0.0, gain: float = 50.0, low: float = 0.0) -> parts._Fit:
    nothing = np.zeros(3)
    return parts._Fit(gain, 2.0, 1.0, middle, width, nothing, low, middle, 0.0, nothing > 0, nothing > 0, (0.0, 1.0))


def test_what_a_warm_up_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that begins in the first tenth of the run, and is then hardly better than a decay behind a warm-up."""
    x, asked = np.arange(100.0, 311, 10), []
    y = np.zeros((3, 22))

    def behind(x: np.ndarray, y: np.ndarray, ends: list[float]) -> np.ndarray:
        asked.append(ends)
        return np.array([error[-1]] * len(y))

    monkeypatch.setattr(parts, "_behind_warmup", behind)
    error: list[float] = []
    for left, said in (0.2, parts.BEHIND), (0.6, ""):  # 50 + 21 ln(error / 2) is 1.6, and 24.7; the limit is 20
        error.append(left)
        fits = [fit(121), fit(122, width=2), fit(123, width=2)]
        assert parts._warming(x, y, fits, None, np.full(3, 20.0)) == [said, said, ""]
    assert asked[0] == pytest.approx([4.2, 8.4, 14.7, 21, 29.4])
    assert parts._warming(x, y, [fit(150)] * 3, None, np.full(3, 20.0)) == [""] * 3 and len(asked) == 2
    error.append(2 * np.exp(-30 / 21))
    limits = np.array([19.99, 20.01, 20.01])
    assert parts._warming(x, y, [fit(110)] * 3, None, limits) == ["", parts.BEHIND, parts.BEHIND]
    # of one that is known each step is asked about, and one whose interval reaches into it is the warm-up's
    fits = [fit(250, low=160), fit(250, low=161), fit(250, gain=60, low=161)]
    assert parts._warming(x, y, fits, 160, np.full(3, 25.0)) == [parts.WARMING, parts.BEHIND, ""]
    assert asked[-1] == [60] and parts._warming(x, y, fits, 100, np.full(3, 25.0)) == [""] * 3


def test_steps_where_records_have_different_gaps() -> None:
    """From the median gap, 10, to half of the run, 75; the widest begins on the second record and ends on the last but
    one."""
    x = 100 + np.array([0, 12.5, 20, 30, 40, 50, 60, 70, 80, 87.5, 150])
    shapes, middles, widths = parts._steps(x)
    assert middles[widths == 0].tolist() == list(range(125, 180, 5))
    np.testing.assert_allclose(np.unique(widths), [0, *(10 * 7.5 ** (np.arange(7) / 6))])
    for width in np.unique(widths)[1:]:
        inside = [at for at in range(125, 180, 5) if at - width / 2 >= 112.5 and at + width / 2 <= 187.5]
        assert middles[widths == width].tolist() == inside and inside
    (widest,) = np.flatnonzero(widths == 75)
    np.testing.assert_allclose(shapes[[1, 5, 9], widest], [0.1, 0.5, 0.9])


def test_the_gain_of_a_clean_step() -> None:
    """At its best no error but the least is left: 19 differences of .03 ** 2 (.3 ** 2 + 0), as in a random walk."""
    x = 100 + np.arange(20.0)
    for fit, height in zip(parts._fits(x, np.outer([5.0, -4.0], x >= 110.0).astype(float)), (5, -4), strict=True):
        assert (fit.middle, fit.width, fit.low, fit.high) == (109.5, 0, 109, 110)
        assert fit.height == pytest.approx(height) and fit.levels == (0, height)
        assert fit.gain == pytest.approx(19 * math.log(fit.without / (19 * 0.03**2 * 0.3**2)))


@pytest.mark.parametrize(("decay", "settled"), [(parts.DECAYS[3], 3), (parts.DECAYS[9], 3), (parts.DECAYS[10], 0)])
def test_an_early_decay_is_over_after_three_of_its_time_constants(decay: float, settled: int) -> None:
    """A time constant over .15 of the run, here 100 steps, is not early."""
    x = 100 + np.arange(101.0)
    (fit,) = parts._fits(x, (20 * np.exp(-(x - 100) / 100 / decay) + np.where(x < 161, 0.0, 5.0))[None])
    assert (fit.middle, fit.settled) == (160.5, pytest.approx(settled * 100 * decay))
    assert fit.height == pytest.approx(5)


@pytest.mark.parametrize("growth", parts.GROWTHS)
def test_a_growth_beside_a_step_is_taken_off_it(growth: float) -> None:
    x = 100 + np.arange(101.0)
    (fit,) = parts._fits(x, (20 * np.exp(((x - 100) / 100 - 1) / growth) + np.where(x < 161, 0.0, 5.0))[None])
    assert (fit.middle, fit.settled) == (160.5, 0) and fit.height == pytest.approx(5)


def test_a_step_that_takes_its_time_begins_and_ends_half_of_it_from_its_middle() -> None:
    x = np.arange(0, 1000.0, 10)
    (fit,) = parts._fits(x, (1 / (1 + np.exp(-(x - 500) / 30)))[None])
    assert fit.middle == 500 and fit.width == pytest.approx(2 * np.log(9) * 30, rel=0.35)
    assert fit.before.tolist() == (x <= 500 - fit.width / 2).tolist()
    assert fit.after.tolist() == (x >= 500 + fit.width / 2).tolist()
    assert fit.before.sum() < 49 and fit.after.sum() < 49


@pytest.mark.parametrize(
    ("gain", "tried", "height", "found"),
    [
        (20.1, 1, 1.0, True),
        (19.9, 1, 1.0, False),
        (23.9, 7, 1.0, True),  # 20 + 2 ln 7 = 23.89
        (23.8, 7, 1.0, False),
        (50.0, 1, 2.9, True),
        (50.0, 1, 3.1, False),  # what lies beside it takes back more than two thirds
    ],
)
def test_which_fits_are_steps(
    gain: float, tried: int, height: float, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.arange(0, 400.0, 10)
    y = np.where(x < 195, 0.0, 1.0)[None]
    (fit,) = parts._fits(x, y)
    monkeypatch.setattr(parts, "_fits", lambda x, y: [replace(fit, gain=gain, height=height, width=30.0)])
    (reading,) = parts._readings(x, y, np.array([tried]), None, known=True)
    assert not reading.undated and (reading.change is not None) is found
    if reading.change:
        assert (reading.change.onset, reading.change.midpoint, reading.change.end) == (180, 195, 210)


@pytest.mark.parametrize(
    ("start", "settled", "high"),
    [
        (0.4, 100, 1210),
        (0.4, 130, 1210),
        (0.4, 131, 1200),  # five records before the step are too few
        (0.4, 0, 1200),
        (0.6, 100, 1200),  # a start that is over halfway there belongs to it
    ],
)
def test_the_level_before_is_without_a_decay_that_is_over(
    start: float, settled: float, high: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halfway to the level of the last half, 2, is 1 from 0, and 1.2 or 1.3 from where the curve begins."""
    x = 1000 + 10 * np.arange(40.0)
    y = np.array([start] * 10 + [0.0] * 9 + [0.3, 0.7, 1.1] + [1.05] * 5 + [2.0] * 13)
    (fit,) = parts._fits(x, y[None])
    given = replace(
        fit, gain=50.0, height=1.0, middle=1195, low=1195, high=1195, settled=settled, levels=(0.0, 1.0),
        before=x <= 1180, after=x >= 1220,
    )  # fmt: skip
    monkeypatch.setattr(parts, "_fits", lambda x, y: [given])
    (reading,) = parts._readings(x, y[None], np.array([1]), None, known=True)
    assert reading.change is not None and (reading.change.low, reading.change.high) == (1190, high)
