"""What a card says about a run: every number by hand, from what stands in the files."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from dashboard.loading import run_summaries
from dashboard.loading.run_summaries import recent_ms, summary, thinned
from tests.dashboard.questions.conftest import Write
from tracer.store import Run
from tracer.store.housekeeping import write_note

NAN = float("nan")
HEADS = ("layer", "head")
COORDS = {"layer": (("layer",), [0, 1], {}), "head": (("head",), [0, 1], {})}


def at_every_step(values: object) -> np.ndarray:
    return np.stack([np.zeros((2, 2)), np.asarray(values, float)])


def test_a_run_in_numbers(write: Write) -> None:
    values = {
        "train_loss": ((), np.array([4.0, NAN])), "step_ms": ((), np.array([6.0, 2.0])),
        "induction": (HEADS, at_every_step([[0.1, 0.5], [0.6, 0.2]])),
        "induction_control": (HEADS, at_every_step([[0.0, 0.1], [0.3, 0.2]])),
    }  # fmt: skip
    run = write("whole", [0, 40], values, COORDS, preset="mine", steps=50, step=20, n_params=123)
    found = summary(run)
    assert (found.kind, found.preset, found.author, found.n_params) == ("watched", "mine", "Reader", 123)
    assert (found.step, found.steps, found.losses, found.step_ms) == (40, 50, (4.0,), 4.0)
    assert (found.loss, found.loss_step) == ("training loss", 0), "no other was recorded, and none at the last step"
    assert (found.best, found.stands_out, found.induction, found.score, found.control) == ((0, 1), True, True, 0.5, 0.1)
    assert found.created is not None and found.created.timestamp() == 1767323045 and not found.damaged
    size = sum(path.stat().st_size for path in run.dir.rglob("*") if path.is_file())
    assert found.megabytes == size / 1e6


def test_without_an_induction_score_the_sharpest_head(write: Write) -> None:
    values = {"entropy_normalised": (HEADS, at_every_step([[0.9, 0.5], [0.25, 0.8]]))}
    found = summary(write("sharp", [0, 3], values, COORDS, step=9))
    assert (found.best, found.stands_out, found.induction, found.score) == ((1, 0), False, False, 0.25)
    assert math.isnan(found.control) and math.isnan(found.step_ms) and (found.step, found.losses) == (9, ())


def test_a_run_without_measures_of_heads_names_none(write: Write) -> None:
    found = summary(write("headless", [0, 1], {"train_loss": ((), np.array([2.0, 1.0]))}, COORDS))
    assert (found.best, found.stands_out, found.induction, found.losses) == (None, False, False, (2.0, 1.0))
    assert math.isnan(found.score) and math.isnan(found.control)


def test_a_run_without_rows_and_runs_that_cannot_be_read(write: Write) -> None:
    none = write("none", step=5)
    empty = write("empty", [], {"train_loss": ((), np.zeros(0))}, COORDS, step=5)
    broken = write("broken", [0], {"train_loss": ((), np.zeros(1))}, COORDS, step=5)
    (broken.dir / "trace.zarr" / "zarr.json").write_text("{")
    for run, damaged in ((none, False), (empty, False), (broken, True)):
        found = summary(run)
        assert (found.step, found.losses, found.best, found.induction) == (5, (), None, True)
        assert (found.stands_out, found.damaged) == (False, damaged)
        assert all(math.isnan(number) for number in (found.score, found.control, found.step_ms))


@pytest.mark.parametrize(
    ("step", "steps", "share", "seconds"),
    [(30, 40, 0.75, 0.03), (40, 40, 1.0, 0.0), (50, 40, 1.0, -0.03), (5, None, 1.0, NAN), (5, 0, 1.0, NAN)],
)
def test_how_far_it_is(step: int, steps: int | None, share: float, seconds: float, write: Write) -> None:
    found = replace(summary(write("far")), step=step, steps=steps, step_ms=3.0)
    assert found.share == share and found.seconds_left == pytest.approx(seconds, nan_ok=True)


def test_settings_say_how_the_run_stands_now(write: Write) -> None:
    run = write("standing", step=4, status="stopped")
    write_note(run, "look here")
    before = run_summaries.settings_of(run)
    assert before["run"] == "standing" and before["step"] == 4
    assert (before["status"], before["note"]) == ("stopped", "look here")
    write_note(run, "seen")  # which is no part of run.json
    assert run_summaries.settings_of(run)["note"] == "seen"


@pytest.mark.parametrize(
    ("kind", "status", "word"),
    [("opened", "finished", "opened"), ("watched", "finished", "finished"), ("opened", "stopped", "stopped")],
)
def test_the_word_for_it(kind: str, status: str, word: str, write: Write) -> None:
    assert run_summaries.status_word(write("worded", kind=kind, status=status)) == word


@pytest.mark.parametrize(
    ("recorded", "ms"),
    [([100, 1, 2, 3, 4, 5, 6, 7, 80], 4.5), ([3, 9, 100, NAN], 9.0), ([NAN, NAN], NAN), ([1, 2, 9], 2.0)],
)
def test_the_median_of_the_last_eight(recorded: list[float], ms: float) -> None:
    assert recent_ms(xr.Dataset({"step_ms": ("step", recorded)})) == pytest.approx(ms, nan_ok=True)
    assert math.isnan(recent_ms(xr.Dataset()))


def test_eighty_points_at_most() -> None:
    assert thinned(np.arange(80.0)) == tuple(np.arange(80.0))
    assert len(thinned(np.arange(81.0))) == 80 and thinned(np.arange(5.0), 3) == (0.0, 2.0, 4.0)
    assert thinned(np.array([NAN, 1.0, NAN, 2.0])) == (1.0, 2.0) and thinned(np.array([NAN])) == ()


def test_a_damaged_run_json_is_a_value_error(write: Write) -> None:
    run: Run = write("damaged")
    (run.dir / "run.json").write_text("[]")
    with pytest.raises(ValueError):
        summary(run)
