"""Waiting for what another process does."""

import time
from collections.abc import Callable


def wait(condition: Callable[[], object], seconds: float = 90) -> None:
    """Until it holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)
