"""Steps whose ratio to what the curve does elsewhere is known by hand."""

import numpy as np
import pytest

from tracer.measures import plateaus
from tracer.measures.plateaus import APART, BACK, ELSEWHERE, JUMPS, RARE, STANDS, why_not

N = 40
STEP = np.repeat([0.0, 1.0], N // 2)
BEFORE, AFTER = STEP < 0.5, STEP > 0.5
RAMP = np.where(BEFORE, np.linspace(0, 1, N) / np.linspace(0, 1, N)[N // 2 - 1], 1.0)
"""Rises by 1 on the way to the step, of which a running mean of 3 sees 17 of 19 parts."""


def said(curve: np.ndarray, tried: int = 1) -> str:
    return why_not(STEP, curve, BEFORE, AFTER, tried)


def drifting(ratio: float) -> np.ndarray:
    """A step of 100 above a drift of the record before it; its size by means of 3 is `ratio` times their range."""
    seen, more = 17 / 19, 1 / 19  # from the first mean of 3 to the last, and from that to the step
    drift = 100 / (ratio * seen - more)
    return 100 * STEP + drift * RAMP - 50


@pytest.mark.parametrize(("ratio", "stands"), [(STANDS * 1.1, True), (STANDS * 0.9, False)])
def test_a_step_must_be_so_many_times_what_either_side_does(ratio: float, stands: bool) -> None:
    assert said(drifting(ratio)) == ("" if stands else f"its step is {ratio:.1f} {ELSEWHERE}, not {STANDS:.1f}")


def test_the_strongest_of_many_must_stand_out_more() -> None:
    curve = drifting(STANDS * 1.2)
    assert said(curve) == "" and said(curve, tried=144).endswith(f"{ELSEWHERE}, not 7.5")


@pytest.mark.parametrize(("apart", "stands"), [(APART * 1.1, True), (APART * 0.9, False)])
def test_levels_in_white_noise_must_be_so_many_standard_errors_apart(apart: float, stands: bool) -> None:
    """Each side alternates, so that its variance is 20/19 of a square and the error of a difference sqrt(2/19)."""
    noise = np.tile([1.0, -1.0], N // 2) * np.where(np.arange(N) % 5, 1, -1)
    noise -= np.where(BEFORE, noise[BEFORE].mean(), noise[AFTER].mean())
    error = np.sqrt(noise[BEFORE].var(ddof=1) / 20 + noise[AFTER].var(ddof=1) / 20)
    assert (said(apart * error * STEP + noise) == "") == stands


@pytest.mark.parametrize(("records", "why"), [(slice(30, 40), BACK), (slice(0, 10), BACK), (slice(20, 20), "")])
def test_what_is_halfway_back_is_an_excursion(records: slice, why: str) -> None:
    curve = STEP.copy()
    curve[records] = 0.4 if records.start else 0.6
    assert said(curve) == why


def test_a_score_must_stand_out_in_log_odds_too() -> None:
    """From .0001 to .02 a score moves as far in log odds as from .02 to .7; a loss of the same shape has none."""
    n = 24  # too few for the tail of its moves
    step = np.repeat([0.0, 1.0], n // 2)
    score = 1 / (1 + np.exp(-np.where(step < 0.5, np.linspace(-9, -4, n // 2)[np.arange(n) % 12], 1)))
    before, after = step < 0.5, step > 0.5
    assert why_not(step, score, before, after).startswith("in log odds")
    assert why_not(step, 20 * score, before, after) == ""
    never = np.where(
        (step < 0.5) & (np.arange(n) % 12 < 9), 0.0, score
    )  # 0 counts as .0001, then there is .02, then .7
    by_means_of_2 = (1 + (4 + 4.4545) / 2) / (np.log(9999) - (4 + 4.4545) / 2)
    assert why_not(step, never, before, after) == f"in log odds its step is {by_means_of_2:.1f} {ELSEWHERE}, not 1.5"


@pytest.mark.parametrize(("jump", "why"), [(20, JUMPS), (60, "")])
def test_one_jump_of_many_is_not_dated(jump: float, why: str) -> None:
    """Each move is 1.2 times the next. Of the 9 largest beside the jump the spacings sum to ln(1.2) (2 + ... + 9) = 8;
    a jump of 38 is as rare as 5 %: (1 + ln(38) / 8) ** -8."""
    signs = np.resize([1, 1, 1, -1, -1, -1], N - 2)
    moves = np.insert(signs * 1.2 ** -np.arange(N - 2.0), N // 2 - 1, jump)
    assert said(np.concatenate([[0], np.cumsum(moves)])) == why


def test_the_odds_of_a_jump_among_others_with_a_tail() -> None:
    """Of the largest 13 of 59 others a Pareto tail (Renyi's spacings): one so far beyond comes in (1 + x) ** -12."""
    others = [8.0, 6.0, 4.0, 3.0, 2.5, 2.0, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2]
    spacings = sum(n * np.log(a / b) for n, (a, b) in enumerate(zip(others, others[1:], strict=False), 2))

    def judged(largest: float, tried: int, size: float, later: bool = False, gap: int = 0) -> bool:
        moves = np.array([*others, *np.linspace(0.1, 1, 16), largest, *np.linspace(0.1, 1, 30)])
        if later:
            moves[[29, -1]] = moves[[-1, 29]]
        moves[::2] *= -1
        y = np.concatenate([[0], np.cumsum(moves)])
        sides = np.arange(61) <= 29 - gap, np.arange(61) >= 30 + gap
        return plateaus._is_one_jump_of_many(y, *sides, size, tried)

    for tried in (1, 4):
        for share, is_one in (1.02, True), (0.98, False):
            largest = 8 * np.exp(spacings * ((RARE / tried * share) ** (-1 / 12) - 1))
            assert judged(largest, tried, -largest) is judged(largest, tried, -largest, gap=2) is is_one
    assert judged(20.0, 1000, 39.0) and not judged(20.0, 1000, 41.0)  # it is half of the step, or it is not
    assert not judged(20.0, 1000, 39.0, later=True)  # one that is not at the change does not make it
