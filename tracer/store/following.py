"""Runs at a URL are brought up to date for as long as this process shows them."""

from __future__ import annotations

import contextlib
import threading
import time

from tracer.store import remote
from tracer.store.run import list_runs

EVERY, RELIST_EVERY = 5, 12
"""Seconds after which live runs are looked at; whole folders, and runs that may have gone on, every twelfth time."""
_URLS: list[str] = []
_LOCK = threading.Lock()


def follow(url: str) -> None:
    """From now on, in a thread of its own; what is out of reach stays as it was."""
    with _LOCK:
        if url in _URLS:
            return
        _URLS.append(url)
        if len(_URLS) == 1:
            threading.Thread(name="following", target=_follow, daemon=True).start()


def _follow() -> None:
    turn = 0
    while True:
        time.sleep(EVERY)
        turn += 1
        for url in list(_URLS):
            with contextlib.suppress(OSError, ValueError):
                for run in list_runs(remote.place(url)):
                    if run.live:
                        run.refresh()
                if turn % RELIST_EVERY == 0:
                    remote.fetch(url)
