"""Scripts take turns: of those of all sessions only a few draw at a time, in the order in which they came.

One interpreter serves everybody. Fifty scripts that run at once do not end sooner, but the thread that reads and
answers all requests then waits for fifty others each time it has let go of the interpreter, which it does whenever it
sends something: nobody is answered until all are done. Whoever computes for long does not keep others waiting: after
`LONG` seconds the next one may begin. Garbage is looked for when nobody draws.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

AT_ONCE = 2
"""One that draws, and one whose file is being read meanwhile."""
LONG = 1.0
"""Seconds after which a script does not count as drawing."""
SWITCH = 0.001
"""Seconds that the thread which answers requests waits for each that draws; Python's own are five times that."""
COLLECT, COLLECT_BUSY = 5.0, 30.0
"""Seconds from one search for garbage to the next, where nobody draws and where somebody always does."""

_lock = threading.Lock()
_collected = time.monotonic()
_began: dict[int, float] = {}
"""When each thread that has its turn began."""
_waiting: deque[threading.Event] = deque()
"""Of each that waits; only the first is woken."""


@contextmanager
def turn() -> Iterator[None]:
    """For as long as the block takes; a block inside another one of the same thread needs none of its own."""
    me = threading.get_ident()
    if me in _began:
        yield
        return
    ticket = threading.Event()
    with _lock:
        _waiting.append(ticket)
    while not _is_turn(ticket, me):
        ticket.wait(_seconds(ticket))
    try:
        yield
    finally:
        with _lock:
            del _began[me]
            _wake()
        _collect()


def _collect() -> None:
    global _collected
    with _lock:
        busy = _began or _waiting
        if time.monotonic() - _collected < (COLLECT_BUSY if busy else COLLECT):
            return
        _collected = time.monotonic()
    gc.collect()


def _is_turn(ticket: threading.Event, me: int) -> bool:
    with _lock:
        ticket.clear()
        if _waiting[0] is not ticket or _until_free():
            return False
        _waiting.popleft()
        _began[me] = time.monotonic()
        _wake()
        return True


def _seconds(ticket: threading.Event) -> float | None:
    """That the first waits at most; the others until they are the first."""
    with _lock:
        return _until_free() if _waiting[0] is ticket else None


def _wake() -> None:
    if _waiting:
        _waiting[0].set()


def _until_free() -> float:
    """Seconds until one of those that draw counts no more; 0 where fewer do than may."""
    now = time.monotonic()
    drawing = sorted(left for began in _began.values() if (left := began + LONG - now) > 0)
    return drawing[-AT_ONCE] if len(drawing) >= AT_ONCE else 0.0
