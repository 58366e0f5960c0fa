"""Timing two or more things in turn, so that a machine whose speed drifts treats them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def in_turn(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Wall seconds of each contender in each round: A B C, A B C, ...; one round before does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(rounds + 1):
        for name, run in contenders.items():
            began = time.perf_counter()
            run()
            if round_number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(numerator: list[float], denominator: list[float]) -> float:
    """The median of the ratios round by round."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))
