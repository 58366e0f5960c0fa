"""Curves whose turn is known."""

import math

import numpy as np
import pytest

from tracer.analysis.change_points import phase_change

STEPS = np.arange(0, 2000, 20)


def jump(low: float, high: float, start: int, stop: int) -> np.ndarray:
    """low until `start`, a straight line, high from `stop`."""
    return np.interp(STEPS, [start, stop], [low, high])


@pytest.mark.parametrize(
    ("low", "high"), [(0.02, 0.95), (4.2, 0.3), (-0.1, -3.5)], ids=["a score rises", "a loss falls", "both negative"]
)
def test_the_window_of_a_jump(low: float, high: float) -> None:
    found = phase_change(STEPS, jump(low, high, 1000, 1100))
    assert found is not None
    assert (found.onset, found.midpoint, found.end) == (1020, 1060, 1100)
    assert (found.before, found.after, found.spread) == (low, high, 0)


def test_a_step_happens_at_once() -> None:
    found = phase_change(STEPS, np.where(STEPS >= 500, 1.0, 0.0))
    assert found is not None
    assert (found.onset, found.midpoint, found.end) == (500, 500, 500)


@pytest.mark.parametrize(("move", "changed"), [(2.9, False), (3.1, True)])
def test_a_move_must_be_three_times_the_spread(move: float, changed: bool) -> None:
    values = np.where(STEPS >= 1000, move, 0.0)
    values[[0, 1]] = [0.5, -0.5]
    assert (phase_change(STEPS, values) is not None) == changed


def test_noise_alone_is_no_change() -> None:
    rng = np.random.default_rng(0)
    assert all(phase_change(STEPS, rng.normal(size=STEPS.size)) is None for _ in range(50))


def test_noise_does_not_hide_a_change() -> None:
    rng = np.random.default_rng(0)
    found = phase_change(STEPS, jump(0, 1, 1000, 1200) + 0.01 * rng.normal(size=STEPS.size))
    assert found is not None
    assert 1000 <= found.onset <= 1040
    assert 1080 <= found.midpoint <= 1120
    assert 1160 <= found.end <= 1200


def test_steps_without_a_value_are_left_out() -> None:
    values = jump(0, 1, 1000, 1100)
    values[::2] = math.nan
    found = phase_change(STEPS, values)
    assert found is not None
    assert (found.onset, found.midpoint, found.end) == (1020, 1060, 1100)


@pytest.mark.parametrize("n", [0, 1, 6])
def test_too_few_snapshots(n: int) -> None:
    assert phase_change(np.arange(n), np.arange(n) >= 3) is None


def test_seven_snapshots_are_enough() -> None:
    found = phase_change(range(7), [0, 0, 0, 1, 1, 1, 1])
    assert found is not None
    assert found.midpoint == 3


def test_past_a_share_is_more_than_the_share() -> None:
    found = phase_change(range(13), [0, 0, 0, 1, 2, 3, 4, 5, 6, 9, 10, 10, 10])
    assert found is not None
    assert (found.onset, found.midpoint, found.end) == (4, 8, 10)


def test_a_flat_curve_does_not_change() -> None:
    assert phase_change(STEPS, np.ones(STEPS.size)) is None


def test_lists_of_different_lengths() -> None:
    with pytest.raises(ValueError, match=r"\(3,\) and values \(2,\)"):
        phase_change([0, 1, 2], [0.0, 1.0])
