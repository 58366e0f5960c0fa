"""Runs at a URL are brought up to date for as long as this process shows them."""

from __future__ import annotations

import contextlib
import threading
import time

from tracer.store import remote
from tracer.store.places import list_runs

EVERY, RELIST_EVERY = 5, 12
"""Seconds after which live runs are looked at; whole folders, and runs that may have gone on, every twelfth time."""
PATIENCE = 20.0
"""Seconds that the folders of MANYEYES_RUNS are waited for; a store behind a network that is down may take minutes."""
_URLS: list[str] = []
_LOCK = threading.Lock()


def update(urls: list[str]) -> dict[str, str]:
    """Fetch all runs of these folders, side by side; why what is not up to date after PATIENCE is not."""
    broken = {url: f"it had not come after {PATIENCE:g} s" for url in urls}

    def one(url: str) -> None:
        try:
            broken.update({f"{url}/{name}": why for name, why in remote.mirror_all(url, whole=True)[1].items()})
            del broken[url]
        except (OSError, ValueError) as error:
            broken[url] = str(error)

    threads = [threading.Thread(target=one, args=(url,), daemon=True) for url in broken]
    for thread in threads:
        thread.start()
    end = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(broken)


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
