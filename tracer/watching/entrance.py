"""Who may be in a recorder: one thread at a time, of one training, in the process that made it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tracer.hooks.refusals import CannotWatch


class Entrance:
    """A lock that those who train wait for and those who only run the model do not; as a context manager, the lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._steppers: set[threading.Thread] = set()
        self._within: set[threading.Thread] = set()
        """Threads that have called `step`, and those that called the model in training since their last one."""

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextlib.contextmanager
    def unless_busy(self) -> Iterator[bool]:
        """False while another thread is in here: who only runs the model must not wait for it."""
        free = self._lock.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._lock.release()

    @property
    def of_one(self) -> bool:
        """Has no second thread called `step`?"""
        return len(self._steppers) < 2

    def trains(self) -> None:
        """This thread has called the model in training."""
        self._within.add(threading.current_thread())

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """The end of this thread's step; CannotWatch where another one is within a step of its own."""
        here = threading.current_thread()
        self._steppers.add(here)
        if other := next((one for one in self._within & self._steppers if one is not here and one.is_alive()), None):
            raise CannotWatch(
                f"two threads ({other.name} and {here.name}) train the model at once, and one recorder follows one "
                f"training: call step() from one of them, or give each a model and a recorder of its own"
            )
        try:
            yield
        finally:
            self._within.discard(here)

    def forked(self) -> None:
        """In a forked process, where a thread that is not here may have had the lock."""
        self._lock = threading.RLock()
