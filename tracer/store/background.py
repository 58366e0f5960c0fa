"""One thread that writes files while training goes on: jobs run in the order in which they were given."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

MOST_PENDING = 8
"""Beyond this many unfinished jobs the giver waits, so that a slow disk costs time and not memory."""


HELPERS = ("zarr", "asyncio")
"""Names, as they begin, of the threads in which zarr encodes chunks and waits for files."""


class Background:
    """A job that failed raises where the next one is given, or at `wait`; those behind it are not run."""

    def __init__(self, before: Callable[[], None]) -> None:
        """`before` runs before each job, and stops it by raising."""
        self._before = before
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="manyeyes-writer")
        self._pending: deque[Future[None]] = deque()
        self._failed = False
        self.seconds = 0.0
        """CPU time of the jobs so far, in this thread and in zarr's."""

    def later(self, job: Callable[..., None], *args: Any) -> None:
        while self._pending and (self._pending[0].done() or len(self._pending) >= MOST_PENDING):
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._run, job, args))

    def _run(self, job: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._failed:  # what comes after a failed write must not be committed before it
            return
        began = _cpu_seconds()
        try:
            self._before()
            job(*args)
        except OSError:
            self._failed = True
            self._before()  # says so, where the folder went away while the job was at it
            raise
        except BaseException:
            self._failed = True
            raise
        finally:
            self.seconds += sum(spent - began.get(thread, 0.0) for thread, spent in _cpu_seconds().items())

    def wait(self) -> None:
        """Until every job is done."""
        while self._pending:
            self._pending.popleft().result()

    def stop(self) -> None:
        """End the thread after the jobs that it has; what they raise is dropped."""
        self._pending.clear()
        self._pool.shutdown()


def _cpu_seconds() -> dict[int, float]:
    """What this thread and zarr's have used of the processor, by thread; of this one alone where the system says no
    more."""
    found = {threading.get_ident(): time.thread_time()}
    if not hasattr(time, "pthread_getcpuclockid"):
        return found
    for one in threading.enumerate():
        if one.name.startswith(HELPERS) and one.ident is not None and one.is_alive():
            found[one.ident] = time.clock_gettime(time.pthread_getcpuclockid(one.ident))
    return found
