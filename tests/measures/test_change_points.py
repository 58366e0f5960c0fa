"""Curves whose change is known, and curves that have none."""

import math

import numpy as np
import pytest

from tests.tiers import quick
from tracer.measures.change_points import (
    BEHIND,
    FEWEST,
    WARMING,
    PhaseChange,
    phase_change,
    phase_changes,
    readings,
)
from tracer.measures.plateaus import BACK, ELSEWHERE, JUMPS

STEPS = np.arange(0, 2000, 20)
U = STEPS / 2000
KINDS = {
    "white": lambda rng: rng.normal(size=STEPS.size),
    "red": lambda rng: red(rng, 0.9),
    "walk": lambda rng: rng.normal(size=STEPS.size).cumsum(),
    "drift": lambda rng: U + 0.05 * rng.normal(size=STEPS.size),
    "decay": lambda rng: np.exp(-U / rng.uniform(0.01, 0.5)) + 0.02 * rng.normal(size=STEPS.size),
    "smooth decay": lambda rng: np.exp(-U / rng.uniform(0.01, 0.5)),
    "growth": lambda rng: np.exp((U - 1) / rng.uniform(0.02, 0.1)) + 0.02 * rng.normal(size=STEPS.size),
    "power law": lambda rng: (U + rng.uniform(0.01, 0.2)) ** -rng.uniform(0.2, 1.5),
}


def red(rng: np.random.Generator, keep: float) -> np.ndarray:
    values = rng.normal(size=STEPS.size)
    for i in range(1, STEPS.size):
        values[i] += keep * values[i - 1]
    return values


def second_order(rng: np.random.Generator, one: float, two: float) -> np.ndarray:
    values = rng.normal(size=STEPS.size + 200)
    for i in range(2, values.size):
        values[i] += one * values[i - 1] + two * values[i - 2]
    return values[200:]


def smoothed(values: np.ndarray, width: int) -> np.ndarray:
    return np.convolve(values, np.ones(width) / width, "valid")


def outlier(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    values[rng.integers(values.size)] += 10
    return values


def there_and_back(rng: np.random.Generator, records: int) -> np.ndarray:
    values, start = 0.02 * rng.normal(size=STEPS.size), rng.integers(8, STEPS.size - records - 8)
    values[start : start + records] += 1
    return values


def behind_warmup(end: float, share: float) -> np.ndarray:
    """A decay whose rate rises linearly until `end`, as that of a loss does; both are shares of the run."""
    learned = np.where(end > U, U**2 / (2 * end), U - end / 2)
    return np.exp(-learned / share)


UNSEEN = {
    "walk of Student's t with 3 degrees of freedom": lambda rng: rng.standard_t(3, STEPS.size).cumsum(),
    "walk of Student's t with 2": lambda rng: rng.standard_t(2, STEPS.size).cumsum(),
    "walk smoothed over 5": lambda rng: smoothed(rng.normal(size=STEPS.size + 4).cumsum(), 5),
    "walk smoothed over 10": lambda rng: smoothed(rng.normal(size=STEPS.size + 9).cumsum(), 10),
    "second order, a cycle of 16": lambda rng: second_order(rng, 1.8, -0.9),
    "second order, a cycle of 26": lambda rng: second_order(rng, 1.9, -0.95),
    "second order, no cycle": lambda rng: second_order(rng, 1.8, -0.81),
    "score that wanders": lambda rng: 1 / (1 + np.exp(-rng.normal(0, 2) - 0.5 * rng.normal(size=STEPS.size).cumsum())),
    "score that wanders from end to end": lambda rng: 1 / (1 + np.exp(-rng.normal(size=STEPS.size).cumsum())),
    "noise that dies out": lambda rng: np.exp(-U / rng.uniform(0.03, 0.5)) * rng.normal(size=STEPS.size),
    "walk that dies out": lambda rng: (np.exp(-U / rng.uniform(0.05, 0.5)) * rng.normal(size=STEPS.size)).cumsum(),
    "spike": lambda rng: there_and_back(rng, rng.integers(3, 7)),
    "bump": lambda rng: there_and_back(rng, rng.integers(10, 30)),
    "one period of a sine": lambda rng: np.sin(2 * np.pi * (U + rng.uniform())) + 0.02 * rng.normal(size=STEPS.size),
    "one outlier on a walk": lambda rng: outlier(rng, rng.normal(size=STEPS.size).cumsum()),
    "decay behind a warm-up": lambda rng: behind_warmup(rng.uniform(0.02, 0.12), np.exp(rng.uniform(-3.5, -0.7))),
    "rise through a warm-up, then decay": lambda rng: (
        np.minimum(U / rng.uniform(0.02, 0.12), 1) * np.exp(-U / rng.uniform(0.1, 0.5))
    ),
}
"""Kinds for which no limit was tuned."""
SOME = ("walk of Student's t with 2", "walk smoothed over 10", "score that wanders", "spike", "decay behind a warm-up")


def jump(low: float, high: float, start: int, stop: int) -> np.ndarray:
    """low until `start`, a straight line, high from `stop`."""
    return np.interp(STEPS, [start, stop], [low, high])


@pytest.mark.parametrize(
    ("low", "high"), [(0.02, 0.95), (4.2, 0.3), (-0.1, -3.5)], ids=["a score rises", "a loss falls", "both negative"]
)
def test_the_window_of_a_jump(low: float, high: float) -> None:
    found = phase_change(STEPS, jump(low, high, 1000, 1100))
    assert found is not None
    assert (found.onset, found.midpoint, found.end) == pytest.approx((1010, 1050, 1090), abs=10)
    assert found.low <= 1050 <= found.high and found.high - found.low <= 40
    assert (found.before, found.after) == pytest.approx((low, high), abs=0.1 * abs(high - low))


def test_a_step_at_once_is_between_two_records() -> None:
    found = phase_change(STEPS, np.where(STEPS >= 500, 1.0, 0.0))
    assert found is not None
    assert (found.onset, found.midpoint, found.end) == (490, 490, 490)
    assert (found.low, found.high, found.before, found.after) == (480, 500, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_change_is_called_one_at_most_5_times_in_100(kind: str) -> None:
    rng = np.random.default_rng(0)
    found = phase_changes(STEPS, np.stack([KINDS[kind](rng) for _ in range(100)]))
    assert sum(change is not None for change in found) <= 5


@pytest.mark.parametrize("kind", quick(UNSEEN, SOME))
def test_nor_are_kinds_for_which_no_limit_was_tuned(kind: str) -> None:
    rng = np.random.default_rng(11)
    found = phase_changes(STEPS, np.stack([UNSEEN[kind](rng) for _ in range(60)]))
    assert sum(change is not None for change in found) <= 3


HEADS = {
    "walks of Student's t with 3": lambda rng: rng.standard_t(3, (144, STEPS.size)).cumsum(1),
    "smoothed walks": lambda rng: np.stack([smoothed(walk, 10) for walk in rng.normal(size=(144, 109)).cumsum(1)]),
    "scores that wander": lambda rng: 1 / (1 + np.exp(2 - 0.3 * rng.normal(size=(144, STEPS.size)).cumsum(1))),
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADS)
def test_the_head_that_ends_highest_of_144_is_dated_at_most_5_times_in_100(kind: str) -> None:
    rng = np.random.default_rng(12)
    models = [HEADS[kind](rng) for _ in range(60)]
    highest = np.stack([heads[np.median(heads[:, -10:], axis=1).argmax()] for heads in models])
    found = phase_changes(STEPS, highest, tried=144)
    assert sum(change is not None for change in found) <= 3


@pytest.mark.parametrize(
    ("curve", "why"),
    [
        (np.where((STEPS >= 700) & (STEPS < 1000), 1.0, 0.0), BACK),
        (np.where((STEPS < 500) | (STEPS >= 900), 1.0, 0.0), BACK),
        (np.where(STEPS >= 700, 1.0, 0.0) + np.where(STEPS >= 1400, 0.4, 0.0), ELSEWHERE),
        (jump(0, 1, 30, 170), BEHIND),
        (np.random.default_rng(20).standard_t(1, STEPS.size).cumsum(), JUMPS),
        (np.where(STEPS >= 1000, 1.0, 0.0), ""),
        (np.zeros(STEPS.size), ""),
    ],
    ids=["bump", "dip", "two steps", "at the start", "one of many jumps", "a change", "nothing"],
)
def test_why_a_step_is_not_dated(curve: np.ndarray, why: str) -> None:
    (found,) = readings(STEPS, [curve])
    assert why in found.undated and bool(found.undated) == bool(why) and (found.change is None or not why)


def test_a_warm_up_that_is_known_is_no_event_and_hides_none_after_it() -> None:
    fall, rise = behind_warmup(0.1, 0.03), jump(0, 1, 900, 1000)
    early, late = readings(STEPS, [fall, rise], warmup=200)
    assert early.change is None and late.change is not None
    soon = jump(0, 1, 100, 240)
    assert readings(STEPS, [soon], warmup=200)[0].undated == WARMING
    assert readings(STEPS, [soon], warmup=0)[0].change is not None  # there was none to explain it


@pytest.mark.parametrize(
    "curve",
    [np.where(STEPS >= 700, 1.0, 0.0) + np.where(STEPS >= 1400, 0.4, 0.0), jump(0, 1, 30, 170), jump(0, 1, 100, 240)],
    ids=["two steps", "behind a warm-up", "as it warms up"],
)
def test_a_change_that_is_known_is_only_dated(curve: np.ndarray) -> None:
    assert readings(STEPS, [curve], warmup=200)[0].undated
    (found,) = readings(STEPS, [curve], warmup=200, known=True)
    assert found.change is not None and not found.undated


@pytest.mark.parametrize(
    "rise",
    [
        lambda past: np.where(past > 0, 1 - np.exp(-np.maximum(past, 0) / 100), 0),
        lambda past: np.where(past < 0, np.exp(np.minimum(past, 0) / 100), 1),
        lambda past: np.where(past >= 0, 0.8 + 0.2 * np.exp(-np.maximum(past, 0) / 100), 0),
    ],
    ids=["slows down", "speeds up", "decays after it"],
)
def test_the_interval_holds_the_middle_of_a_rise_that_is_no_logistic(rise) -> None:
    rng = np.random.default_rng(13)
    starts = rng.uniform(500, 1400, 60)
    dense = np.arange(0, 2000, 0.5)
    middles = [dense[np.argmax(rise(dense - start) >= rise(np.array([-1e9, 1.0, 1e9])).max() / 2)] for start in starts]
    curves = np.stack([rise(STEPS - start) for start in starts]) + 0.01 * rng.normal(size=(60, STEPS.size))
    found = [(one, at) for one, at in zip(phase_changes(STEPS, curves), middles, strict=True) if one]
    assert len(found) >= 50
    assert np.mean([one.low <= at <= one.high for one, at in found]) >= 0.93


@pytest.mark.parametrize("noise", [0.02, 0.08, 0.15])
def test_noise_moves_no_date_beyond_its_interval(noise: float) -> None:
    rng = np.random.default_rng(1)
    curves = jump(0, 1, 1000, 1200) + noise * rng.normal(size=(60, STEPS.size))
    found = [change for change in phase_changes(STEPS, curves) if change]
    assert len(found) >= 57
    assert sum(change.low <= 1100 <= change.high for change in found) >= 0.93 * len(found)
    assert np.median([change.onset for change in found]) == pytest.approx(1020, abs=30)
    assert np.median([change.end for change in found]) == pytest.approx(1180, abs=30)


def test_a_change_on_top_of_a_decay_is_dated() -> None:
    curve = 4 * np.exp(-U / 0.05) + jump(1.0, 0, 1400, 1500) + 0.01 * np.random.default_rng(2).normal(size=STEPS.size)
    found = phase_change(STEPS, curve)
    assert found is not None and found.low <= 1450 <= found.high and found.high - found.low < 100


def test_a_long_curve_is_read_as_means_of_neighbours() -> None:
    steps = np.arange(5000)
    curve = (steps >= 3000) + 0.3 * np.random.default_rng(3).normal(size=5000)
    found = phase_change(steps, curve)
    assert found is not None and found.low <= 3000 <= found.high and found.high - found.low <= 75


@pytest.mark.parametrize(("width", "changed"), [(800, True), (1600, False)])
def test_a_slope_is_no_event(width: int, changed: bool) -> None:
    """Of a run of 2000 steps; the middle 80 % of an S-shaped way count."""
    noise = 0.01 * np.random.default_rng(5).normal(size=STEPS.size)
    curve = jump(0, 1, 1000 - width // 2, 1000 + width // 2) + noise
    assert (phase_change(STEPS, curve) is not None) == changed


@pytest.mark.parametrize(("least", "changed"), [(0.9, True), (1.0, True), (1.1, False)])
def test_a_step_smaller_than_asked_for_is_none(least: float, changed: bool) -> None:
    assert (phase_change(STEPS, np.where(STEPS >= 500, 1.0, 0.0), least) is not None) == changed


def test_levels_are_those_beside_the_step() -> None:
    """On a drift of 1 in 1000 steps: 3 values on either side, 20 apart."""
    found = phase_change(STEPS, STEPS / 1000 + 5 * (STEPS >= 1000))
    assert found is not None and (found.before, found.after) == pytest.approx((0.96, 6.02))


@pytest.mark.parametrize(
    ("steps", "around"),
    [
        ([0, 300, 390, 410, 500], (390, 410)),
        ([0, 300, 400, 500], (300, 500)),  # a step at the onset has already begun to change
        ([0, 300, 410], (300, 410)),
        ([395, 405], (395, 405)),
    ],
)
def test_the_steps_around_a_change(steps: list[int], around: tuple[int, int]) -> None:
    assert PhaseChange(400, 405, 410, 400, 410, 0.0, 1.0).around(steps) == around


def test_intervals_that_share_a_step_overlap() -> None:
    one, other, far = (phase_change(STEPS, (at <= STEPS) * 1.0) for at in (500, 520, 540))
    assert one and other and far
    assert one.overlaps(other) and other.overlaps(one) and not one.overlaps(far) and not far.overlaps(one)


def test_steps_without_a_value_are_left_out() -> None:
    values = np.where(STEPS >= 1000, 1.0, 0.0)
    values[::2] = math.nan
    found = phase_change(STEPS, values)
    assert found is not None
    assert (found.low, found.midpoint, found.high) == (980, 1000, 1020)


def test_curves_with_different_gaps_are_those_read_alone() -> None:
    curves = np.random.default_rng(4).normal(size=(3, STEPS.size)) * 0.1 + (STEPS >= 700)
    curves[1, ::3] = math.nan
    assert phase_changes(STEPS, curves) == [phase_change(STEPS, curve) for curve in curves]


@pytest.mark.parametrize("n", [0, 1, FEWEST - 1])
def test_too_few_values(n: int) -> None:
    assert phase_change(np.arange(n), np.arange(n) >= n // 2) is None


def test_a_clean_step_needs_no_more_than_the_fewest() -> None:
    found = phase_change(range(FEWEST), [0, 0, 0, 0, 1, 1, 1, 1, 1])
    assert found is not None and (found.low, found.high) == (3, 4)


def test_a_flat_curve_does_not_change() -> None:
    assert phase_change(STEPS, np.ones(STEPS.size)) is None


def test_lists_of_different_lengths() -> None:
    with pytest.raises(ValueError, match=r"\(3,\) and values \(2,\)"):
        phase_change([0, 1, 2], [0.0, 1.0])
