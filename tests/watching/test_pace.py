"""What recording costs and when the next measurement is due, by a clock that the test sets."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from tracer.tracking import clock
from tracer.watching import pace
from tracer.watching.pace import Pace

SHARE = 0.1


class Told:
    """A clock that stands where it was put."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()
    for module in (clock, pace):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=told.perf_counter))
    return told


@pytest.fixture
def spent(time: Told) -> Pace:
    """4 s of setting up, 2 s of measuring, 1 s of looking, 0.5 s of checking, beside 0.25 s of writing: 7.5 s of 20."""
    found = Pace(SHARE, None)
    found.writing = lambda: 0.25
    with found.measuring():
        time.now = 4.0
    time.now = 10.0
    with found.measuring():
        time.now = 12.0
    with found.looks():
        time.now = 13.0
    with found.checks():
        time.now = 13.5
    time.now = 20.0
    return found


def test_what_recording_costs(spent: Pace) -> None:
    """Measurements, looks, checks and writing: 2 + 1 + 0.5 + 0.25 s beside 12.5 s of training; setting up apart."""
    assert spent.training == 12.5
    assert spent.cost() == pytest.approx({
        "seconds": 20.0, "training_seconds": 12.5, "recording_seconds": 3.75, "recording_share": 0.3, "records": 2,
        "recording_ms": 3750.0, "setup_seconds": 4.0, "writing_seconds": 0.25, "samples_seconds": 0.0,
        "samples_share": 0.0, "jobs": 1,
    })  # fmt: skip


def test_before_the_first_record_there_is_no_cost(time: Told) -> None:
    found = Pace(SHARE, None)
    time.now = 2.0
    assert found.cost() == pytest.approx({
        "seconds": 2.0, "training_seconds": 2.0, "recording_seconds": 0.0, "recording_share": 0.0, "records": 0,
        "recording_ms": 0.0, "setup_seconds": 0.0, "writing_seconds": 0.0, "samples_seconds": 0.0,
        "samples_share": 0.0, "jobs": 1,
    })  # fmt: skip


def test_a_job_that_goes_on_adds_to_what_those_before_it_cost(spent: Pace, time: Told) -> None:
    """20 s of which 4 s set up, and 10 s more of which 1 s set up and 2 s measured: two setups are no records' cost."""
    second = Pace(SHARE, None)
    second.earlier = spent.cost()
    with second.measuring():
        time.now += 1
    with second.measuring():
        time.now += 2
    second.samples, time.now = 0.5, time.now + 7
    assert second.training == pytest.approx(6.5)
    assert second.cost() == pytest.approx({
        "seconds": 30.0, "training_seconds": 19.0, "recording_seconds": 5.75, "recording_share": 5.75 / 19,
        "records": 4, "recording_ms": 2875.0, "setup_seconds": 5.0, "writing_seconds": 0.25, "samples_seconds": 0.5,
        "samples_share": 0.5 / 19, "jobs": 2,
    })  # fmt: skip


@pytest.mark.parametrize(("training", "due"), [(12.5, False), (57.4, False), (57.6, True)])
def test_a_measurement_is_due_when_its_share_of_the_time_has_passed(
    spent: Pace, time: Told, training: float, due: bool
) -> None:
    """3.75 s were spent, and another 2 s would be: a tenth of 57.5 s."""
    time.now = 7.5 + training
    assert spent.due(5, 4) is due


@pytest.mark.parametrize(("training", "wait"), [(12.5, 162), (60.0, 1)])
def test_the_next_measurement_is_told_in_advance(spent: Pace, time: Told, training: float, wait: int) -> None:
    """Of the look no more than half of a tenth counts, 0.625 s of 12.5: 5.375 s wait for 53.75 s, 49 steps in 12.5."""
    time.now = 7.5 + training
    assert spent.next_after(10, 49) == 10 + wait


def test_a_pass_may_be_looked_at_where_half_of_the_share_pays(spent: Pace, time: Told) -> None:
    """1 s was spent, and the pass that was looked at last took 1 s, which counts until one may be looked at again."""
    seen = []
    for training in (39.0, 39.0, 41.0, 21.0, 19.0):
        time.now = 7.5 + training
        seen.append(spent.may_look())
    assert seen == [False, False, True, True, False]


def test_numbers_are_read_where_a_quarter_of_the_share_pays(spent: Pace, time: Told) -> None:
    time.now = 47.5  # 40 s of training, a fortieth of which is 1 s
    assert spent.may_check(0.49) and not spent.may_check(0.51)


def test_a_step_is_timed_without_recording(spent: Pace, time: Told) -> None:
    assert spent.step_ms(5) == pytest.approx(2500)
    time.now = 24.0
    assert spent.step_ms(7) == pytest.approx(2000) and math.isnan(spent.step_ms(7))


EARLY = [1, 2, 4, 8, 10, 20, 30]


def test_steps_that_were_asked_for_are_due_whatever_they_cost(time: Told) -> None:
    found = Pace(SHARE, 10)
    assert [step for step in range(1, 35) if found.due(step, step - 1)] == EARLY
    assert found.due(25, 9) and not found.due(29, 21) and found.due(7, 3) and not found.due(17, 15)
    assert [found.next_after(step, step) for step in (0, *EARLY[:-1])] == EARLY
