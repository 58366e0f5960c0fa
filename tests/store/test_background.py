"""The thread that writes: one job after the other, and none after one that failed."""

import threading

import pytest

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
