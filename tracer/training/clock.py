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


def account(
    total: float, recording: float, writing: float, records: float, *, setup: float = 0.0, samples: float = 0.0
) -> dict[str, float]:
    """What run.json says of a training's time, in seconds, and recording as a share of the training proper.

    `total` is the wall clock's. Of it `recording` went into measuring, `setup` of that once, and `samples` into sample
    texts; `writing` is CPU time of the threads that write, beside the training and on its cores.
    """
    training = max(total - recording - samples, 1e-9)
    measuring = recording - setup + writing
    return {
        "seconds": total, "training_seconds": training, "recording_seconds": measuring,
        "recording_share": measuring / training, "records": records,
        "recording_ms": 1000 * measuring / max(1, records - (setup > 0)), "writing_seconds": writing,
    }  # fmt: skip
