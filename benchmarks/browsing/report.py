"""Rows of a Markdown table, and numbers as a person reads them."""

from __future__ import annotations

import statistics

Update = tuple[float, float, int]
"""Wall ms, CPU ms, bytes received."""


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def table(title: str, *columns: str) -> None:
    print(f"\n{title}\n")
    row(*columns)
    row(*["---"] * len(columns))


def size(n: float) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 1e6 else f"{n / 1e3:.0f} kB" if n >= 1e4 else f"{n:.0f} B"


def ms(seconds: float) -> str:
    return f"{seconds / 1000:.1f} s" if seconds >= 1000 else f"{seconds:.0f} ms"


def middle(values: list[float]) -> float:
    return statistics.median(values)


def worst(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[round(0.95 * (len(values) - 1))]


def summed(found: list[Update]) -> tuple[str, str, str]:
    """Medians of (bytes, wall, CPU)."""
    wall, cpu, received = zip(*found, strict=True)
    return size(middle(list(received))), ms(middle(list(wall))), ms(middle(list(cpu)))
