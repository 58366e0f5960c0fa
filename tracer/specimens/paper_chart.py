"""The chart that a paper is known by: which curves, of which of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tracer.config.field_docs import fields_in_help
from tracer.store import Run


@fields_in_help
@dataclass(frozen=True)
class PaperChart:
    """Curves of one seed's runs, such as a loss over training beside what theory gives; ValueError where a field
    cannot be."""

    text: str
    """What is to be seen, in a sentence."""
    needs: tuple[str, ...]
    """Names of the runs that it is drawn from; the first seed that has them all is shown."""
    curves: Callable[[Mapping[str, Run]], Mapping[str, tuple[Any, Any]]]
    """(x, y) by name, of {name: tracer.Run} of one seed: two lists of one length; what is not finite is left out."""
    y: str
    """What y is, with its unit."""
    x: str = "step"
    """What x is."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """Values of y to compare with, by name: what theory gives, or chance."""
    log: Literal["", "x", "y", "xy"] = ""
    """The axes that are logarithmic; what is not above 0 is left out there."""

    def __post_init__(self) -> None:
        if isinstance(self.needs, str) or not self.needs:
            raise ValueError(f"chart {self.text!r:.60}: needs={self.needs!r} must be a tuple of names of runs")
        if not callable(self.curves):
            raise ValueError(f"chart {self.text!r:.60}: curves must be a function of the runs of a seed")
        if self.log not in ("", "x", "y", "xy"):
            raise ValueError(f"chart {self.text!r:.60}: log={self.log!r} must be '', 'x', 'y' or 'xy'")
