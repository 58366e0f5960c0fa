"""Waiting for what another process does."""

import time
from collections.abc import Callable


def wait(condition: Callable[[], object], seconds: float = 300) -> None:
    """Until it holds; the limit is for what hangs, not for a busy machine."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)
