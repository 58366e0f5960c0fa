"""The thread that writes: one job after the other, and none after one that failed."""

import threading
import time

import pytest

from tests.waiting import wait
from tracer.store import background as background_module
from tracer.store.background import Background


def test_jobs_are_done_one_after_the_other() -> None:
    done: list[int] = []
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        may_end.wait()
        done.append(1)

    background = Background(lambda: None)
    background.later(slow)
    second = threading.Event()
    background.later(lambda: (done.append(2), second.set())[1])
    begun.wait()
    assert not second.wait(0.2)  # the first is at work
    may_end.set()
    background.wait()
    background.stop()
    assert done == [1, 2]


def test_nothing_is_done_after_a_job_that_failed() -> None:
    done: list[int] = []

    def fails() -> None:
        raise OSError("no room")

    background = Background(lambda: None)
    begun = threading.Event()
    background.later(lambda: (begun.wait(), None)[1])
    background.later(fails)
    background.later(lambda: done.append(1))
    begun.set()
    with pytest.raises(OSError, match="no room"):
        background.wait()
    background.stop()
    assert done == []


def test_whoever_gives_waits_while_too_many_are_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_module, "MOST_PENDING", 2)
    may_end, given = threading.Event(), list[int]()
    background = Background(lambda: None)

    def give() -> None:
        for i in range(3):
            background.later(lambda: (may_end.wait(), None)[1])
            given.append(i)

    giver = threading.Thread(target=give)
    giver.start()
    wait(lambda: len(given) == 2)
    giver.join(0.3)
    assert given == [0, 1] and giver.is_alive()
    may_end.set()
    giver.join()
    background.wait()
    background.stop()
    assert given == [0, 1, 2]


def test_the_time_of_threads_that_encode_is_counted_from_when_they_began() -> None:
    """A job's own thread sleeps, and one of zarr's, which it starts, works for a fifth of a second of CPU time."""
    worked, may_end = threading.Event(), threading.Event()

    def encode() -> None:
        while time.thread_time() < 0.2:
            pass
        worked.set()
        may_end.wait()

    helper = threading.Thread(target=encode, name="zarr-encodes")
    background = Background(lambda: None)
    background.later(lambda: (helper.start(), worked.wait(), None)[2])
    background.wait()
    may_end.set()
    helper.join()
    assert 0.2 <= background.seconds < 0.4
    background.later(lambda: None)
    background.wait()
    background.stop()
    assert background.seconds < 0.4
