"""How a run stands between two words of its run.json: its process has begun, or has not ended yet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from dashboard.shared import run_bar
from tests import children
from tests.dashboard.words import labels
from tracer.store import Run
from tracer.store.layout import Lock

BEFORE = 4_194_305
"""Number of a process that was asked to stop and is gone."""


@pytest.fixture
def resumed(none_left: None, copy_run: Callable[..., Run]) -> Iterator[Callable[..., Run]]:
    """resumed("other", spoken, status): a stopped run that a new process has taken, before or after its first word."""
    locks = []

    def make(name: str, spoken: bool, status: str) -> Run:
        process = children.start([sys.executable, "-c", "import time; time.sleep(600)"])
        status, _, ends = status.partition(" and ")
        run = copy_run(name, status=status, pid=process.pid if spoken else BEFORE)
        locks.append(Lock(run.dir))
        if ends:
            locks[-1].release()
        log = run.dir / "log.jsonl"
        jobs._STARTED[run.dir.resolve()] = jobs.Started(name, run.dir, log, process, "resume")
        return run

    yield make
    for lock in locks:
        lock.release()


@pytest.mark.parametrize(
    ("spoken", "status", "word", "offered"),
    [
        (False, "stopped", "resuming", {"Fork"}),  # it has the lock, run.json is its predecessor's
        (False, "training", "resuming", {"Fork"}),  # as after kill -9
        (True, "training", "training", {"Stop", "Fork"}),
        (True, "stopped", "stopping", {"Stopping …", "Fork"}),  # its last word; it lets go of the lock next
        (True, "stopped and let go", "stopping", {"Stopping …", "Fork"}),  # no other can go on before it has ended
    ],
)
def test_a_run_between_two_processes(
    spoken: bool,
    status: str,
    word: str,
    offered: set[str],
    resumed: Callable[..., Run],
    open_page: Callable[..., AppTest],
) -> None:
    run = resumed("other", spoken, status)
    app = open_page("training", run="other")
    app.session_state["stopping other"] = BEFORE  # asked of the process before
    app.run()
    assert f"{run_bar.BADGES[word][0]} {word}]" in next(e.value for e in app.caption if "-badge[" in e.value)
    assert {"Stop", "Stopping …", "Resume", "Fork"} & set(labels(app)) == offered
    assert run.live == ("let go" not in status)


def test_asked_to_stop_it_is_stopping_to_the_end(
    copy_run: Callable[..., Run], open_page: Callable[..., AppTest]
) -> None:
    run = copy_run("other", status="stopped", pid=BEFORE)
    lock = Lock(run.dir)
    app = open_page("training", run="other")
    app.session_state["stopping other"] = BEFORE
    for let_go, offered in ((False, {"Stopping …", "Fork"}), (True, {"Resume", "Fork"})):
        if let_go:
            lock.release()
        app.run()
        assert {"Stop", "Stopping …", "Resume", "Fork"} & set(labels(app)) == offered


def test_what_another_process_has_taken_is_not_resumed(
    copy_run: Callable[..., Run], open_page: Callable[..., AppTest]
) -> None:
    """As `tracer resume` in a terminal does a moment before it writes run.json."""
    run = copy_run("other", status="stopped", pid=BEFORE)
    lock = Lock(run.dir)
    app = open_page("training", run="other")
    assert "Fork" in labels(app) and "Resume" not in labels(app)
    lock.release()
    assert "Resume" in labels(app.run())
