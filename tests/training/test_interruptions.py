"""Trainings that are killed, stopped or out of disk: nothing that was committed is lost."""

import errno
import json
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.trainings import tiny
from tracer.config import RecordConfig
from tracer.store import RunWriter, open_run
from tracer.store.trace import TraceWriter
from tracer.training import loop
from tracer.training.interrupts import interrupts
from tracer.training.session import TrainingSession, between_points


def test_a_second_signal_while_the_first_is_heard():
    """A terminal tells Ctrl-C to the sweep and to its training, and the sweep passes it on: both may come at once.

    Here the other one comes before each line of the handler, and of all that it calls, once.
    """

    def hangs(*_):
        raise AssertionError(f"before line {line} the handler of the first signal waits for the second's")

    def meanwhile(_frame, event, _arg):
        lines.append(event) if event == "line" else None
        if len(lines) == line + 1 and not came:
            came.append(line)
            signal.raise_signal(signal.SIGTERM)
        return meanwhile

    line, came, before = -1, [0], signal.signal(signal.SIGALRM, hangs)
    try:
        while came:
            line, lines, came = line + 1, [], []
            signal.alarm(60)
            with interrupts() as asked:
                sys.settrace(lambda *_: meanwhile)
                signal.raise_signal(signal.SIGINT)
                sys.settrace(None)
                assert asked()
    finally:
        sys.settrace(None)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert line > 1


def test_a_step_that_is_gone_on_from_is_one_record(tmp_path, monkeypatch):
    """Stopped after step 4, so that step 5 is recorded by the next session alone."""

    def show(session: TrainingSession, step: int) -> None:
        if step == 4 and session.start == 0:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainingSession, "_show", show)
    config = tiny(tmp_path / "run", steps=8)
    run = loop.train(replace(config, record=replace(config.record, every=1)), quiet=True)
    assert run.status == "stopped" and run.meta["step"] == 5 and run.meta["cost"]["records"] == 5
    run = loop.resume(run.dir, quiet=True)
    assert run.meta["cost"]["records"] == run.trace.sizes["step"] == 9
    cost = run.meta["cost"]
    assert 0 < cost["writing_seconds"] < cost["recording_seconds"]
    training = cost["seconds"] + cost["writing_seconds"] - cost["recording_seconds"] - cost["samples_seconds"]
    assert 0 < cost["samples_seconds"] < cost["seconds"] and cost["training_seconds"] == pytest.approx(training)
    assert cost["recording_ms"] == pytest.approx(1000 * cost["recording_seconds"] / 9)
    for share in ("recording", "samples"):
        assert cost[f"{share}_share"] == pytest.approx(cost[f"{share}_seconds"] / training)


def test_a_failed_write_leaves_no_gap(tmp_path, monkeypatch):
    """A disk that errs once: what was not written is recorded again by a resume, to the bit."""
    write, calls = TraceWriter.write, []

    def fail_once(self, rows):
        calls.append(rows)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        write(self, rows)

    monkeypatch.setattr(TraceWriter, "write", fail_once)
    monkeypatch.setattr(TraceWriter, "due", lambda self: True)
    with pytest.raises(OSError, match=r"the disk failed \(Input/output error\) at step .*`tracer resume"):
        loop.train(tiny(tmp_path / "r"), quiet=True)
    run = open_run(tmp_path / "r")
    assert run.status == "interrupted"
    assert loop.resume(run.dir, quiet=True).trace["step"].values.tolist() == [0, 1, 2, 4, 8, 12, 16, 20]


def test_a_run_cannot_be_shortened_to_before_its_resume_point(tmp_path):
    run = loop.train(tiny(tmp_path / "r", steps=4), quiet=True)
    meta = {**run.meta, "status": "stopped", "error": "OSError: once"}
    (run.dir / "run.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="is at step 4 already: steps=3 cannot be less"):
        loop.resume(run.dir, steps=3, quiet=True)
    again = loop.resume(run.dir, steps=6, quiet=True)
    assert run.config.steps == 6 and again.meta["error"] is None
    assert np.isfinite(again.trace["update_ratio"].sel(step=4)).all(), "the row of the old last step has its update"


@pytest.mark.parametrize("begin", ["create_trace", "extend"])
def test_what_fails_before_the_first_step_lets_go_of_the_run(tmp_path, monkeypatch, begin):
    def fails(*_, **__):
        raise OSError("once")

    directory, kind = tmp_path / "r", RunWriter
    if begin == "extend":
        kind = TraceWriter
        loop.train(tiny(directory, steps=2), quiet=True)

    def asked():
        return loop.resume(directory, 4, quiet=True) if begin == "extend" else loop.train(tiny(directory), quiet=True)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="once"):
        patched.setattr(kind, begin, fails)
        asked()
    assert not open_run(directory).live
    assert asked().status == "finished"


@pytest.mark.parametrize(("cost", "pause"), [(0.0, 10.0), (0.1, 10.0), (0.25, 25.0)])
def test_resume_points_take_a_hundredth_of_the_time_at_most(cost, pause):
    assert between_points(cost) == pause


def test_resume_points_do_not_wait_for_snapshots(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.training.session.CHECKPOINT_SECONDS", 0.0)
    kept = []
    monkeypatch.setattr("tracer.store.RunWriter.checkpoint", lambda self, step, state, **facts: kept.append(step))
    record = RecordConfig(every=50, snapshot_every=50, val_rows=2)
    loop.train(tiny(tmp_path / "r", steps=200, record=record), quiet=True)
    assert set(kept) - {0, 50, 100, 150, 200}
