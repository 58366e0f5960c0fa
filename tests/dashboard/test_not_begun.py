"""What waits, and what was lost with its dashboard, on the Runs page: nothing begins before somebody says so."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs, work_queue
from tests.dashboard.words import labels, written
from tests.waiting import wait
from tracer.store import Run, waiting
from tracer.store.waiting import FOLDER, Asked, Ticket

Open = Callable[..., AppTest]


@pytest.fixture
def place(none_left: None, workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to start in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    return tmp_path


def lose(name: str, **changes: object) -> Path:
    """A training that no process holds any more."""
    asked = {"command": "train", "of": "induction", "name": name, "seed": 1, "steps": 100_000, **changes}
    ticket = waiting.keep(Asked.model_validate(asked))
    ticket.release()
    return ticket.path


def there() -> list[str]:
    return sorted(os.listdir(Path("checkpoints", FOLDER)))


@contextmanager
def taken() -> Iterator[None]:
    """All places of this server, those of processes that are ending too."""
    for _ in range(work_queue.PROCESSES):
        assert work_queue.Process.slots.acquire(timeout=300)
    try:
        yield
    finally:
        work_queue.Process.slots.release(work_queue.PROCESSES)


@pytest.fixture
def full() -> Iterator[None]:
    with taken():
        yield


def test_what_was_lost_is_shown_and_begins_when_it_is_asked_for(place: Path, open_page: Open) -> None:
    lose("toy", options=("--model.n-heads=2",))
    app = open_page("runs")
    assert "lost" in written(app) and "The dashboard in which it waited has ended." in written(app)
    command = "tracer train induction --run checkpoints/toy --seed 1 --steps 100000 --model.n-heads=2"
    assert [code.value for code in app.code if "tracer train" in code.value] == [command]
    assert jobs.started() == [] and len(there()) == 1
    assert jobs.free_name("toy") == "toy-2"  # it would else take the name of what is lost
    next(button for button in app.button if button.label == "Start").click().run()
    (one,) = jobs.started()
    assert not app.exception and one.alive and one.process.pid is not None and there() == []
    assert "lost" not in written(app) and "Start" not in labels(app)
    assert isinstance(one.process, work_queue.Process) and one.process.args[3:] == command.split()


def test_several_wait_again_in_their_order(place: Path, full: None, open_page: Open) -> None:
    for name in ("first", "second", "third"):
        lose(name)
    lost = there()
    app = open_page("runs")
    assert "3 waited when their dashboard ended." in written(app)
    app.button(key="start_lost").click().run()
    assert [one.name for one in reversed(jobs.started())] == ["first", "second", "third"]
    assert all(one.waits for one in jobs.started()) and jobs.not_begun() == []
    assert not set(there()) & set(lost) and len(there()) == 3
    assert labels(app).count("Remove") == 3 and "waiting" in written(app)
    app.button(key="remove waiting-second-train").click().run()
    assert [one.name for one in reversed(jobs.started())] == ["first", "third"] and len(there()) == 2
    (Path("checkpoints", FOLDER) / there()[0]).unlink()  # by hand
    app.run()
    assert [one.waits for one in reversed(jobs.started())] == [False, True]
    assert "It was stopped before it began." in written(app)


def test_what_was_removed_while_it_waited_does_not_begin(place: Path) -> None:
    with taken():
        removed, stays = (jobs.train("induction", name, 0, 100_000) for name in ("removed", "stays"))
        (Path("checkpoints", FOLDER) / there()[0]).unlink()
    wait(lambda: stays.process.pid is not None)
    wait(lambda: not removed.alive)
    assert removed.process.pid is None and not removed.failed and there() == []


def test_what_another_dashboard_holds_is_its_own(place: Path, open_page: Open) -> None:
    ticket: Ticket = waiting.keep(Asked(command="reproduce", options=("base",)))
    app = open_page("runs")
    assert "It waits in another dashboard." in written(app) and "Start" not in labels(app)
    with pytest.raises(ValueError, match="another dashboard holds it"):
        jobs.start_again(jobs.not_begun()[0])
    next(button for button in app.button if button.label == "Remove").click().run()
    assert not ticket.there and "another dashboard" not in written(app)
    ticket.release()


def test_what_cannot_begin_stays_and_says_why(place: Path, open_page: Open, small_run: Run) -> None:
    (place / "checkpoints" / "tiny").symlink_to(small_run.dir)
    lose("tiny")
    lose("odd", of="no-such-preset")
    lose("evil", options=("--overwrite",))
    lose("../up")
    lose("gone", command="resume", of=str(place / "nowhere"))
    lose("zero", command="reproduce", options=("--table",))
    app = open_page("runs")
    for button in [str(button.key) for button in app.button if button.label == "Start"]:
        app.button(key=button).click().run()
    assert not app.exception and jobs.started() == [] and len(there()) == 6
    for said in ("already holds a run", "there is no preset 'no-such-preset'", "'--overwrite' is not set from here",
                 "run's name is made of letters", "nowhere", "'--table' is no specimen"):  # fmt: skip
        assert re.search(said, written(app), re.IGNORECASE), said
    app.button(key="forget_lost").click().run()
    assert there() == [] and "lost" not in written(app)


def test_a_damaged_file_ends_no_page_and_can_be_forgotten(place: Path, open_page: Open) -> None:
    lose("**x** <img src=x>")
    lose("x", of="a" * 4000)
    (place / "checkpoints" / FOLDER / "cut.json").write_text('{"asked":')
    Path(os.fsdecode(os.fsencode(place / "checkpoints" / FOLDER) + b"/\xff.json")).write_bytes(b"{")
    app = open_page("runs")
    assert written(app).count("cannot be understood") == 2 and labels(app).count("Start") == 2
    assert "<img" not in "".join(str(e.value) for kind in (app.markdown, app.caption) for e in kind)
    for button in [str(button.key) for button in app.button if button.label == "Forget"]:
        app.button(key=button).click().run()
    assert not app.exception and there() == []


def test_a_link_in_its_place_is_named(place: Path, full: None, open_page: Open) -> None:
    (place / "mine").mkdir()
    (place / "checkpoints" / FOLDER).symlink_to(place / "mine")
    app = open_page("runs")
    assert "is a link to" in written(app) and "Forget" not in labels(app) and not app.exception
    with pytest.raises(ValueError, match="is a link to"):
        jobs.train("induction", "toy", 0, 10)
    assert jobs.started() == [] and os.listdir(place / "mine") == []


def test_a_log_is_not_written_through_a_link(place: Path) -> None:
    (place / "mine").write_text("dear")
    (place / "checkpoints" / jobs.LOGS).mkdir()
    (place / "checkpoints" / jobs.LOGS / "toy.log").symlink_to(place / "mine")
    with pytest.raises(ValueError, match="is a link to"):
        jobs.train("induction", "toy", 0, 10)
    assert (place / "mine").read_text() == "dear" and jobs.started() == []


def test_where_it_is_read_only_nobody_learns_of_it(
    place: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose("toy")
    (one,) = jobs.not_begun()
    monkeypatch.setenv("MANYEYES_READ_ONLY", "1")
    assert jobs.not_begun() == [] and "lost" not in written(open_page("runs"))
    for deed in (jobs.start_again, jobs.take_back):
        with pytest.raises(ValueError, match="read-only"):
            deed(one)
    assert len(there()) == 1
