"""Trainings that are stopped, doubled or out of disk, as real processes: nothing committed is lost.

The attacks kill them.
"""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainings import start, tiny
from tests.waiting import wait
from tracer.config import RecordConfig
from tracer.store import RunWriter, open_run
from tracer.store.trace import TraceWriter
from tracer.training import loop
from tracer.training.session import TrainingSession

pytestmark = pytest.mark.slow


def test_ctrl_c_stops_cleanly(tmp_path):
    directory = tmp_path / "run"
    process = start(directory, "--steps", "100000")
    wait(lambda: (directory / "run.json").exists() and len(open_run(directory).steps) > 3)
    assert open_run(directory).status == "training" and open_run(directory).live
    process.send_signal(signal.SIGINT)
    process.wait(300)
    output = directory.with_suffix(".txt").read_text()
    assert process.returncode == 130, output
    assert "stopped at step" in output and "Traceback" not in output
    run = open_run(directory)
    assert run.status == "stopped" and run.resume_step() == run.meta["step"]


def test_a_full_disk_keeps_what_was_committed(tmp_path):
    """A file system of 3 MB that really fills up."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount)], capture_output=True)
    command = [sys.executable, "-m", "tracer", "train", "induction", "--run", f"{mount}/run", "--steps", "400",
               "--record.every", "5", "--record.snapshot-every", "5", "--optim.batch-size", "4"]  # fmt: skip
    if done.returncode:  # not root: with a limit on the size of a file, a resume point does not fit
        command = ["bash", "-c", f"ulimit -f 300; exec {' '.join(command)}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
        assert run.returncode == 2, run.stdout + run.stderr
        assert "disk is full" in run.stderr and "tracer resume" in run.stderr and "Traceback" not in run.stderr
        kept = open_run(mount / "run")
        assert len(kept.steps) >= 3 and kept.status == "interrupted"
        for step in kept.steps:
            kept.model(step)
    finally:
        subprocess.run(["umount", str(mount)], capture_output=True)


def test_two_processes_cannot_train_one_run(tmp_path):
    directory = tmp_path / "busy"
    process = start(directory, "--steps", "100000")
    try:
        wait(lambda: (directory / "run.json").exists() and open_run(directory).resume_step() is not None)
        with pytest.raises(ValueError, match="trained by another process"):
            loop.resume(directory, quiet=True)
    finally:
        process.kill()
        process.wait()


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


def test_resume_points_do_not_wait_for_snapshots(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.training.session.CHECKPOINT_SECONDS", 0.0)
    kept = []
    monkeypatch.setattr("tracer.store.RunWriter.checkpoint", lambda self, step, state, **facts: kept.append(step))
    record = RecordConfig(every=50, snapshot_every=50, val_rows=2)
    loop.train(tiny(tmp_path / "r", steps=200, record=record), quiet=True)
    assert set(kept) - {0, 50, 100, 150, 200}
