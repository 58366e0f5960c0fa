"""A claim, what was done to break it, and what came out; as JSON and as the page that people read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.mutants.report import section

HEAD = """# What the screens claim, and how it was attacked

Written by `python -m benchmarks.truth`, not by hand; the figures are in [truth.json](truth.json). An attack computes
its answer from first principles: in float64, by brute force, with a large reference sample, or on a system whose answer
is known because it was built that way.
"""
TEXT = ("claim", "where", "attack", "figure")


@dataclass(frozen=True)
class Attack:
    """One row of the page."""

    claim: str
    """What a screen or a function says, as a reader would put it."""
    where: str
    """The page, or the name in Python."""
    attack: str
    """What was done to break it."""
    figure: str
    """What came out, with its unit and the size of the sample."""
    holds: bool


def page(areas: dict[str, Iterable[dict[str, str | bool]]], mutants: dict[str, Any]) -> str:
    """The page of all areas, from what JSON holds of them, and how many small wrong changes the tests notice."""
    parts = [HEAD]
    for area, attacks in areas.items():
        rows = [
            f"| {' | '.join(str(one[key]) for key in TEXT)} | {'yes' if one['holds'] else '**no**'} |"
            for one in attacks
        ]
        parts += [f"\n## {area}\n\n| claim | where | attack | figure | holds |\n|---|---|---|---|---|", *rows]
    return "\n".join(parts) + "\n" + (section(mutants) if mutants["rooms"] else "")
