"""How a number is named, coloured and printed in a picture: the scale of a measure, the label of a head."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tracer.measures import Measure, Setting
from tracer.measures.described import out_of_range


@dataclass(frozen=True)
class Scale:
    """How the values of one measure are coloured and printed."""

    label: str
    unit: str = ""
    lo: float = 0.0
    hi: float = 1.0
    palette: str = "score"
    digits: int = 2
    chance: float | None = None
    mark: str = "chance"
    """What the dashed line at `chance` is called."""
    marks: tuple[tuple[str, float], ...] = ()
    """Further values with their names, which curves draw as dotted lines."""

    def payload(self) -> dict[str, Any]:
        """The scale as the components' scripts read it; they know the palettes by name."""
        return asdict(self)


EVEN = "even attention"
"""What an entropy is compared with: that of attention to all keys alike."""


def mark_of(measure: Measure) -> str:
    """What the value at chance of a measure is called."""
    return EVEN if measure.name in ("entropy", "entropy_normalised") else "chance"


def head_label(layer: int, head: int) -> str:
    """L1H4: zero-based layer and head."""
    return f"L{layer}H{head}"


def parse_head(label: str) -> tuple[int, int]:
    """(1, 4) from 'L1H4' (any case, spaces or a dot between)."""
    match = re.fullmatch(r"\s*L?(\d+)\s*[H.]\s*(\d+)\s*", label, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{label!r} is not a head; write it like L1H4")
    return int(match[1]), int(match[2])


def of_measure(measure: Measure, setting: Setting | None, values: ArrayLike = ()) -> Scale:
    """How a measure is coloured and printed; an open end of its range is taken from the values.

    So is an end that a value is beyond. Where signs matter, zero is in the middle.
    """
    finite = np.asarray(values, float).ravel()
    finite = finite[np.isfinite(finite)]
    low = measure.low if measure.low is not None else float(finite.min(initial=0.0))
    high = measure.high if measure.high is not None else float(finite.max(initial=low))
    if out_of_range(finite, measure.low, measure.high):
        low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if measure.palette == "diverging":
        high = max(abs(low), abs(high))
        low = -high
    return Scale(
        label=measure.label, unit=measure.unit, lo=low, hi=high if high > low else low + 1.0,
        palette="change" if measure.palette == "diverging" else "score", chance=measure.at_chance(setting),
        mark=mark_of(measure),
    )  # fmt: skip
