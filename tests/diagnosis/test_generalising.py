"""What losses say beside each other, by hand: overfitting, other data, guessing; and which targets a loss is about."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr

from tracer.diagnosis.findings import Finding
from tracer.diagnosis.generalising import chance, flat, mismatch, overfit
from tracer.diagnosis.growth import falls, updates
from tracer.diagnosis.objective import NEXT, SAME, TARGETS, target, twice
from tracer.diagnosis.rules import early
from tracer.diagnosis.verdict import verdict

N = 40
FALLING = np.linspace(4, 0.2, N)
RISING = np.r_[np.linspace(4.2, 3.3, 10), np.linspace(3.3, 11.4, 30)]


def losses(train: np.ndarray, held_out: np.ndarray) -> xr.Dataset:
    return xr.Dataset(
        {"train_loss": (("step",), train), "val_loss": (("step",), held_out)}, {"step": np.arange(len(train)) * 10}
    )


@pytest.mark.parametrize(
    ("train", "held_out", "severity"),
    [
        pytest.param(FALLING, RISING, "bad", id="best 3.3, ends at 11.4"),
        pytest.param(FALLING, np.r_[np.linspace(4.2, 3.3, 20), np.linspace(3.3, 3.72, 20)], "watch", id="a little"),
        pytest.param(
            FALLING, np.r_[np.linspace(4.2, 3.3, 20), np.linspace(3.3, 3.5, 20)], None, id="less than a tenth"
        ),
        pytest.param(FALLING + 4, np.linspace(4.2, 3.3, N), None, id="it falls"),
        pytest.param(np.linspace(4, 6, N), RISING, None, id="both rise: that is another finding"),
        pytest.param(FALLING, np.r_[np.linspace(4.2, 3.3, 36), [4, 3.3, 4, 3.3]], None, id="noise"),
    ],
)
def test_overfitting(train: np.ndarray, held_out: np.ndarray, severity: str | None) -> None:
    found = list(overfit({}, losses(train, held_out)))
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    if severity == "bad":  # 3.3 + 0.1 * 3.3 is passed 0.33 / 8.1 of the way: two of 29 records after the best
        assert found[0].step == 120 and "3.3 at step 90" in found[0].evidence and "11.4" in found[0].evidence


@pytest.mark.parametrize(
    ("held_out", "found"),
    [
        pytest.param(np.full(N, 4.0), True, id="nothing"),
        pytest.param(np.linspace(4, 3.5, N), True, id="a seventh"),
        pytest.param(np.linspace(4, 3, N), False, id="more than a fifth"),
        pytest.param(RISING, False, id="overfitting says more"),
    ],
)
def test_a_held_out_loss_that_gains_nothing(held_out: np.ndarray, found: bool) -> None:
    assert bool(list(mismatch({}, losses(FALLING, held_out)))) == found
    assert not list(mismatch({}, losses(np.full(N, 4.0), held_out)))


GUESS = math.log(100)


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        pytest.param(np.r_[GUESS, np.full(N - 1, 9.0)], True, id="rose"),
        pytest.param(np.r_[np.linspace(30, 9, 10), np.full(30, 9.0)], True, id="stays above"),
        pytest.param(np.linspace(30, 6, N), True, id="still falls, from far too large, and was never below"),
        pytest.param(np.linspace(13, 6, N), False, id="still falls"),
        pytest.param(np.r_[30, 4.0, np.linspace(20, 6, N - 2)], False, id="was below once"),
        pytest.param(np.full(N, GUESS * 1.1), False, id="never moved"),
        pytest.param(np.r_[GUESS, np.full(N - 1, GUESS * 1.15)], False, id="the first batch was easier"),
        pytest.param(np.linspace(GUESS * 1.1, 2, N), False, id="learns"),
    ],
)
def test_worse_than_guessing(loss: np.ndarray, found: bool) -> None:
    assert bool(list(chance({"d_vocab": 100}, losses(loss, loss)))) == found


def beside(train: float, *others: float) -> xr.Dataset:
    """A run of these losses against each of TARGETS; softmax taken twice is far off where nothing is said of it."""
    others = others + (5,) * (len(TARGETS) - len(others))
    assert len(others) == len(TARGETS)
    return xr.Dataset(
        {"train_loss": (("step",), np.full(8, train)), "shifted_loss": (("step", "target"), np.tile(others, (8, 1)))},
        {"step": np.arange(8)},
    )


@pytest.mark.parametrize(
    ("train", "others", "found"),
    [
        pytest.param(1.5, (3, 3, 1.5, 3, 3, 3), NEXT, id="next"),
        pytest.param(0.02, (5, 0.02, 5, 5, 5, 5), SAME, id="copied"),
        pytest.param(2.0, (2.01, 2.01, 2.0, 2.01, 2.01, 2.01), NEXT, id="to rounding, before anything is learned"),
        pytest.param(2.005, (2.01, 2.01, 2.0, 2.01, 2.01, 2.01), None, id="not told apart"),
        pytest.param(400.0, (3, 3, 1.5, 3, 3, 3), None, id="a sum"),
        pytest.param(
            0.25, (5, 5, 0.1, 5, 5, 5), NEXT, id="a last place that is not seen: 0.25 = (15 * 0.1 + 2.5) / 16"
        ),
        pytest.param(0.5, (5, 5, 0.1, 5, 5, 5), None, id="more than a last place can cost"),
    ],
)
def test_which_target_a_loss_is_about(train: float, others: tuple[float, ...], found: int | None) -> None:
    run = beside(train, *others)
    assert target({"row": 16, "d_vocab": 16}, run) == found
    assert not twice(run)


@pytest.mark.parametrize(
    ("train", "once", "again", "found"),
    [(2.8, 2.5, 2.8, True), (2.83, 2.5, 2.8, True), (2.9, 2.5, 2.8, False), (2.8, 2.75, 2.8, False)],
)
def test_softmax_that_is_taken_twice(train: float, once: float, again: float, found: bool) -> None:
    run = beside(train, 7, 7, once, 7, 7, 7, again)
    assert twice(run) == found
    assert not twice(run.isel(target=slice(6)))  # a run that was recorded before this was
    assert not twice(run.isel(step=slice(2)))


@pytest.mark.parametrize(
    ("loss", "steps", "found"),
    [
        pytest.param(np.r_[1.5, np.full(N - 1, 1.37)], 10, False, id="the frequencies of classes are learned"),
        pytest.param(np.r_[1.39, np.full(N - 1, 1.37)], 10, True, id="nothing is learned"),
        pytest.param(np.r_[1.39, np.full(N - 1, 1.37)], 3, False, id="too early"),
        pytest.param(np.linspace(1.39, 1.30, N), 10, False, id="falls slowly"),
        pytest.param(np.full(N, 0.9), 10, False, id="knows them already"),
        pytest.param(np.r_[np.full(N - 1, 1.37), 2.0], 10, False, id="no guess"),
    ],
)
def test_a_classifier_that_learns_nothing(loss: np.ndarray, steps: int, found: bool) -> None:
    trace = xr.Dataset({"train_loss": (("step",), loss)}, {"step": np.arange(N) * steps})
    assert bool(list(flat({"classes": 4}, trace))) == found


def test_a_small_rate_that_helps_is_no_standstill() -> None:
    """An update ratio of 1e-5: with a held-out loss that falls by a percent it is fine-tuning; biases do not count."""
    ratios = np.tile([1e-5, 0.5], (N, 1))
    trace = xr.Dataset({"update_ratio": (("step", "param"), ratios)}, {"step": np.arange(N), "param": ["w", "b"]})
    assert [one.title for one in updates({}, trace)] == ["Nothing moves"]
    for held_out, moves in ((np.linspace(3, 2.95, N), True), (np.linspace(3, 2.999, N), False)):
        with_loss = trace.assign(val_loss=("step", held_out))
        assert falls(with_loss) == moves
        assert bool(list(updates({}, with_loss))) != moves


def test_a_run_has_one_verdict() -> None:
    from tests.cli.test_diagnose import one
    from tracer.diagnosis.findings import Diagnosis

    def said(findings: list[Finding], looked_for: list[str], early: bool = False) -> tuple[str, str]:
        found = verdict(Diagnosis(findings, looked_for, [], early=early))
        return found.severity, found.text

    assert said([one()], ["divergence"]) == ("watch", "1 to watch")
    assert said([one()], ["divergence"], early=True) == ("watch", "1 to watch")
    assert said([], ["divergence", "idle heads"], early=True) == ("early", "too few records")
    assert said([], ["divergence", "idle heads"]) == ("healthy", "healthy")
    assert said([], ["divergence"]) == said([], []) == ("unknown", "not measured")


@pytest.mark.parametrize(("rows", "short"), [(0, False), (1, True), (7, True), (8, False)])
def test_a_loss_is_judged_from_eight_rows(rows: int, short: bool) -> None:
    losses = np.append(np.linspace(3, 2, rows), [np.nan] * 4)  # a row without the loss counts for nothing
    assert early(xr.Dataset({"train_loss": ("step", losses)})) == short
    assert not early(xr.Dataset({"val_loss": ("step", np.ones(3))}))  # checkpoints of somebody's, never trained here
