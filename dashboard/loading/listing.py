"""Which runs are there: listed once for all sessions, until a run.json changes, comes or goes.

To list a thousand takes 0.1 s, and each page asks several times; a look at the times of their files takes a tenth.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from tracer import store
from tracer.store import Run, stamps


class Listing(NamedTuple):
    stamp: stamps.Stamp | None
    runs: list[Run]
    """Newest first."""
    broken: dict[str, str]
    """Why each directory that has a run.json cannot be opened, by its name."""


_lock = threading.Lock()
_last = Listing(None, [], {})


def found() -> Listing:
    """What is there now; it is shared, and not to be changed."""
    global _last
    with _lock:  # one reads, and the others have what it read
        stamp = stamps.of_folders(store.ROOTS)
        if stamp is None or _last.stamp != stamp:
            _last = Listing(stamp, store.list_runs(), store.broken_runs())
        return _last
