"""What recording costs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

import torch


class Clock:
    """The seconds of a training, and of everything that recording adds to it, over all jobs that worked on the run."""

    def __init__(self, device: torch.device, start: int = 0) -> None:
        """`start`: the updates that were made before this job."""
        self.device = device
        self.earlier: Mapping[str, float] = {}
        """What `cost` said when the job before this one ended."""
        self.seconds = 0.0
        """Spent on recording so far, in this job,"""
        self.setup = 0.0
        """of that on the first record, where libraries are loaded and the run is laid out: no share of every step,"""
        self.samples = 0.0
        """and beside it on sample texts."""
        self.records = 0
        self.writing: Callable[[], float] = float
        """CPU seconds of the threads that write files, 0 until there are any: beside the training, on its cores."""
        self.began = time.perf_counter()
        self._mark = (start, self.began)

    def now(self) -> float:
        """Seconds, once the device has done what it was given."""
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

    @property
    def training(self) -> float:
        """Seconds of training proper, in this job."""
        return time.perf_counter() - self.began - self.seconds - self.samples

    def step_ms(self, step: int) -> float:
        """Mean milliseconds of a step since this was last asked, without recording; `step`: updates made so far."""
        now = self.now() - self.seconds - self.samples
        (made, then), self._mark = self._mark, (step, now)
        return 1000 * (now - then) / (step - made) if step > made else float("nan")

    def cost(self) -> dict[str, float]:
        """What run.json says of a training's time, in seconds, and recording as a share of the training proper.

        `seconds` is the wall clock's. Of it `recording_seconds` went into measuring, with the CPU time of the threads
        that write (`writing_seconds`), which work beside the training and on its cores; `setup_seconds` and
        `samples_seconds` are apart.
        """
        writing, jobs = self.writing(), self.earlier.get("jobs", float(bool(self.earlier))) + 1
        total, measuring, written, setup, samples, records = (
            self.earlier.get(name, 0.0) + now
            for name, now in (
                ("seconds", time.perf_counter() - self.began),
                ("recording_seconds", self.seconds - self.setup + writing), ("writing_seconds", writing),
                ("setup_seconds", self.setup), ("samples_seconds", self.samples), ("records", self.records),
            )
        )  # fmt: skip
        training = max(total - (measuring - written) - setup - samples, 1e-9)
        return {
            "seconds": total, "training_seconds": training, "recording_seconds": measuring,
            "recording_share": measuring / training, "records": records,
            "recording_ms": 1000 * measuring / max(1, records - jobs * (setup > 0)), "writing_seconds": written,
            "setup_seconds": setup, "samples_seconds": samples, "samples_share": samples / training, "jobs": jobs,
        }  # fmt: skip
