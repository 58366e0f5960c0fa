"""Timing two or more things in turn, so that a machine whose speed drifts treats them alike."""

from __future__ import annotations

import ctypes
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path


def in_turn(
    contenders: dict[str, Callable[[], object]], rounds: int, wait: Callable[[], object] = lambda: None
) -> dict[str, list[float]]:
    """Wall seconds of each contender in each round: A B C, A B C, ...; one round before does not count.

    `wait` returns once the device that they run on has done its work.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(rounds + 1):
        for name, run in contenders.items():
            wait()
            began = time.perf_counter()
            run()
            wait()
            if round_number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(numerator: list[float], denominator: list[float]) -> float:
    """The median of the ratios round by round."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))


def peak_megabytes(run: Callable[[int], object], tokens: int) -> float:
    """The most memory that this process held while that many tokens ran, over what it held before (Linux)."""
    run(8)  # what is loaded and set up once is no part of it
    ctypes.CDLL(None).malloc_trim(0)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    run(tokens)
    return _status("VmHWM") - before


def _status(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024 / 1e6
