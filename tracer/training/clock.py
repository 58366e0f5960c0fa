"""What recording costs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch


class Clock:
    """Seconds, once the device has done what it was given."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds = 0.0
        """Spent on recording so far."""

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """What runs inside counts as the cost of recording."""
        began = self.now()
        try:
            yield
        finally:
            self.seconds += self.now() - began
