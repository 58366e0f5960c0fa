"""Training started from the dashboard: a process of its own that is watched, stopped, resumed, read when it fails."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard import jobs, typed_paths
from tests.waiting import wait
from tracer.store import Run, open_run
from tracer.store.waiting import Asked


@pytest.fixture
def place(none_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to start in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_started_watched_stopped_and_resumed(place: Path) -> None:
    one = jobs.train("induction", "toy", seed=0, steps=100_000)
    assert one.alive and not one.failed and jobs.started() == [one]
    assert (
        one.process.pid is not None and os.getsid(one.process.pid) == one.process.pid
    )  # not of our session: it outlives the server
    wait(lambda: one.has_run and len(open_run("toy").steps) > 1)
    assert open_run("toy").status == "training"
    with pytest.raises(ValueError, match="already holds a run"):
        jobs.train("induction", "toy", seed=0, steps=10)
    jobs.stop(open_run("toy"))
    wait(lambda: not one.alive)
    assert one.process.returncode == 130 and not one.failed
    assert open_run("toy").status == "stopped"
    kept = len(open_run("toy").steps)
    again = jobs.resume(open_run("toy"))
    wait(lambda: len(open_run("toy").steps) > kept)
    assert open_run("toy").live and open_run("toy").meta["pid"] == again.process.pid
    jobs.stop(open_run("toy"))
    wait(lambda: not again.alive)
    assert jobs.started() == [again]


def test_what_a_failed_process_said_is_kept(place: Path) -> None:
    one = jobs._start(Path("checkpoints/x"), Asked(command="train", of="no-such-preset", name="x"))
    wait(lambda: not one.alive)
    assert one.failed and not one.has_run
    said = one.tail(100)
    assert "no-such-preset" in said and "induction-natural" in said and "Traceback" not in said
    jobs.forget(one)
    assert jobs.started() == []


def test_a_killed_process_counts_as_failed(place: Path) -> None:
    one = jobs.train("induction", "toy", seed=0, steps=100_000)
    assert one.process.pid is not None
    os.kill(one.process.pid, signal.SIGKILL)
    wait(lambda: not one.alive)
    assert one.failed


@pytest.mark.parametrize("name", ["", "-x", "a/b", "../x", ".hidden", "a b", "a" * 81, "<b>"])
def test_names_that_are_no_names(place: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a run's name is made of letters"):
        jobs.train("induction", name, seed=0, steps=10)
    assert not (place / "checkpoints").exists()


def test_free_names(place: Path) -> None:
    assert jobs.free_name("demo-3") == "demo-3"
    for taken in ("demo-3", "demo-3-2"):
        (place / "checkpoints" / taken).mkdir(parents=True)
    assert jobs.free_name("demo-3") == "demo-3-3"


@pytest.mark.parametrize(
    ("model", "name"),
    [("gpt2", "gpt2"), ("EleutherAI/pythia-14m", "pythia-14m"), ("/a/b c/", "b-c"), ("..", "model"), ("", "model")],
)
def test_a_run_is_named_after_its_model(model: str, name: str) -> None:
    assert typed_paths.model_name(model) == name


def test_checkpoint_folders_are_found(tmp_path: Path) -> None:
    for name in ("checkpoint-1000", "checkpoint-500", "step20", "checkpoint-last", "runs"):
        (tmp_path / name).mkdir()
    assert typed_paths.checkpoints(tmp_path) == [20, 500, 1000]


@pytest.mark.parametrize(
    ("model", "revisions", "name", "message"),
    [
        ("", [], "x", "name a directory"),
        ("--help", [], "x", "name a directory"),
        ("gpt2", ["-h"], "x", "'-h' is no revision"),
        ("gpt2", [], "../x", "a run's name is made of"),
        ("/nowhere/model", [], "x", "/nowhere/model is no directory of this machine"),
        ("~nobody-of-this-name/model", [], "x", "is no directory of this machine"),
        (".", [], "x", ". holds no model: save_pretrained writes a config.json"),
    ],
)
def test_a_model_is_not_opened_under_odd_names(
    model: str, revisions: list[str], name: str, message: str, place: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        jobs.open_model(model, revisions, name)
    assert jobs.started() == []


def test_a_model_is_opened_from_its_checkpoints(place: Path, others: Path) -> None:
    one = jobs.open_model(str(others / "saved"), [], "again")
    assert one.command == "open"
    wait(lambda: not one.alive)
    assert not one.failed, one.tail()
    run = open_run("again")
    assert (run.about.kind, run.status, run.steps) == ("opened", "finished", [10, 20])


def test_a_tail_has_no_control_characters(place: Path) -> None:
    log = place / "log"
    log.write_bytes(b"first\n\x1b[2K\x1b[31mred\x1b[0m\rstep 1\rstep 2\n\n\xff last  \n")
    one = jobs.Started("x", place, log, None)  # pyrefly: ignore[bad-argument-type]
    assert one.tail() == "first\nred\nstep 1\nstep 2\n\N{REPLACEMENT CHARACTER} last"
    assert one.tail(1) == "\N{REPLACEMENT CHARACTER} last"


def test_only_what_trains_here_can_be_stopped(
    workplace: Path, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="tiny is not training any more"):
        jobs.stop(open_run("tiny"))
    monkeypatch.setattr(Run, "live", property(lambda self: True))
    elsewhere = copy_run("elsewhere", host="another-machine", pid=1)
    with pytest.raises(ValueError, match="elsewhere trains on another-machine: stop it there"):
        jobs.stop(elsewhere)
    nowhere = copy_run("nowhere", host=None, pid=None)
    with pytest.raises(ValueError, match=re.escape("where its process is not known")):
        jobs.stop(nowhere)
    gone = copy_run("gone", pid=2**22 + 1)  # above the largest id that Linux gives out
    with pytest.raises(ValueError, match="holds no lock on it: nothing is stopped"):
        jobs.stop(gone)


def test_a_fork_is_a_process_that_begins_at_a_snapshot(none_left: None, workplace: Path, small_run: Run) -> None:
    one = jobs.fork(small_run, 20, "forked", 25, " L1H0 off, L0 no-previous 22: ,")
    wait(lambda: not one.alive, 120)
    try:
        assert not one.failed, one.tail()
        run = open_run("forked")
        assert run.meta["parent"]["run"] == "tiny" and run.meta["parent"]["step"] == 20
        assert run.config.clamp == ("L1H0 off", "L0 no-previous 22:") and run.config.steps == 25
    finally:
        shutil.rmtree("checkpoints/forked", ignore_errors=True)


@pytest.mark.parametrize(
    ("name", "steps", "clamp", "message"),
    [
        ("../x", 30, "", "a run's name is made of"),
        ("tiny", 30, "", "already holds a run"),
        ("x", 20, "", "20 steps leave nothing to train after step 20"),
        ("x", 30, "L1H0 asleep", "clamp 'L1H0 asleep' is not understood"),
        ("x", 30, "--help", "clamp '--help' is not understood"),
        ("x", 30, "L9 off", "this model has layers 0 to 1"),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused_before_it_starts(
    name: str, steps: int, clamp: str, message: str, workplace: Path, small_run: Run
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        jobs.fork(small_run, 20, name, steps, clamp)
    assert not (workplace / "checkpoints" / "x").exists()
