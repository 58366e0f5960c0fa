"""Trainings that are killed, stopped or out of disk: nothing that was committed is lost."""

import errno
import json
import signal
import sys
from typing import Any

import numpy as np
import pytest

from tests.trainings import tiny
from tracer.store import open_run
from tracer.store.trace import TraceWriter
from tracer.training import loop
from tracer.training.interrupts import interrupts
from tracer.training.session import between_points


def test_a_second_signal_while_the_first_is_heard():
    """A terminal tells Ctrl-C to the sweep and to its training, and the sweep passes it on: both may come at once.

    Here the other one comes before each line of the handler, and of all that it calls, once.
    """

    def hangs(*_):
        raise AssertionError(f"before line {line} the handler of the first signal waits for the second's")

    def meanwhile(_frame, event, _arg) -> Any:
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


@pytest.mark.parametrize(("cost", "pause"), [(0.0, 10.0), (0.1, 10.0), (0.25, 25.0)])
def test_resume_points_take_a_hundredth_of_the_time_at_most(cost, pause):
    assert between_points(cost) == pause
