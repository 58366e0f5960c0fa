"""Curves whose change is known, and curves that have none."""

import math

import numpy as np
import pytest

from tracer.measures.change_points import DECAYS, FEWEST, WIDEST, PhaseChange, phase_change, phase_changes

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


@pytest.mark.parametrize("noise", [0.02, 0.08, 0.15])
def test_noise_moves_no_date_beyond_its_interval(noise: float) -> None:
    rng = np.random.default_rng(1)
    curves = jump(0, 1, 1000, 1200) + noise * rng.normal(size=(60, STEPS.size))
    found = [change for change in phase_changes(STEPS, curves) if change]
    assert len(found) >= 57
    assert sum(change.low <= 1100 <= change.high for change in found) >= 0.93 * len(found)
    assert np.median([change.onset for change in found]) == pytest.approx(1020, abs=30)
    assert np.median([change.end for change in found]) == pytest.approx(1180, abs=30)


def test_a_slow_change_in_noise_is_dated_as_finely_as_it_can_be() -> None:
    """95 % of intervals hold the date: narrower ones would miss it, wider ones say less than the curves do."""
    curves = jump(0, 1, 800, 1200) + 0.25 * np.random.default_rng(1).normal(size=(60, STEPS.size))
    found = [change for change in phase_changes(STEPS, curves) if change]
    assert len(found) >= 45 and np.mean([change.low <= 1000 <= change.high for change in found]) >= 0.95
    assert np.median([change.high - change.low for change in found]) <= 160


@pytest.mark.parametrize(("left", "changed"), [(0.0, False), (0.28, False), (0.36, True), (0.6, True)])
def test_a_step_that_a_decay_takes_back_is_a_hump(left: float, changed: bool) -> None:
    """A step of 1, of which it has made 0.8 from its onset to its end, and a decay that leaves `left` of that."""
    x, width, middle = STEPS.astype(float), np.geomspace(20, WIDEST * 1980, 7)[5], 660
    decays = np.exp(-x / 1980 / DECAYS[12])
    at_onset, at_end = (np.interp(middle + side * width / 2, x, decays) for side in (-1, 1))
    step = 1 / (1 + np.exp(-(x - middle) * 2 * np.log(9) / width))
    found = phase_change(STEPS, step + (0.8 - left) / (at_onset - at_end) * decays)
    assert (found is not None) == changed
    assert found is None or (found.midpoint, found.after - found.before) == pytest.approx((middle, left), abs=0.02)


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
