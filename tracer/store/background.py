"""One thread that writes files while training goes on: jobs run in the order in which they were given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

MOST_PENDING = 8
"""Beyond this many unfinished jobs the giver waits, so that a slow disk costs time and not memory."""


class Background:
    """A job that failed raises where the next one is given, or at `wait`; those behind it are not run."""

    def __init__(self, before: Callable[[], None]) -> None:
        """`before` runs before each job, and stops it by raising."""
        self._before = before
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="manyeyes-writer")
        self._pending: deque[Future[None]] = deque()
        self._failed = False

    def later(self, job: Callable[..., None], *args: Any) -> None:
        while self._pending and (self._pending[0].done() or len(self._pending) >= MOST_PENDING):
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._run, job, args))

    def _run(self, job: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._failed:  # what comes after a failed write must not be committed before it
            return
        try:
            self._before()
            job(*args)
        except BaseException:
            self._failed = True
            raise

    def wait(self) -> None:
        """Until every job is done."""
        while self._pending:
            self._pending.popleft().result()

    def stop(self) -> None:
        """End the thread after the jobs that it has; what they raise is dropped."""
        self._pending.clear()
        self._pool.shutdown()
