"""What is said of every variable of a trace, and the names of the probes that it is measured on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tracer.measures.setting import Setting

SE = "_se"
"""Ends the name of a variable's standard error, over the sequences that it is a mean of."""
SEQUENCES = "sequences"
"""The attribute of a standard error in a trace: of how many sequences it is."""
HEAD = ("step", "layer", "head")
LAYER = ("step", "layer")
PARAM = ("step", "param")
HEAD_MATRIX = ("step", "layer", "head", "matrix")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One variable of the trace."""

    name: str
    """Its name in the trace."""
    label: str
    """A title, for an axis or a menu."""
    short: str
    """As few letters as fit on a small grid."""
    formula: str
    """Plain text, in the words of design and docstrings."""
    source: str
    """Who defined it; "ours" where nobody did."""
    probe: str
    """Which tokens it is measured on: a key of PROBES, or the name of somebody's own."""
    dims: tuple[str, ...]
    """Its dimensions in the trace."""
    unit: str = ""
    """Empty for pure numbers."""
    low: float | None = None
    """Smallest possible value; None when there is no bound."""
    high: float | None = None
    """Largest possible value; None when there is no bound or it depends on the setting."""
    palette: Literal["sequential", "diverging"] = "sequential"
    """diverging when 0 is in the middle and signs matter."""
    worse: Literal["", "high", "low"] = ""
    """Which end nobody wants; empty where neither is better."""
    note: str = ""
    """What a reader could get wrong."""
    chance_text: str = ""
    """What `chance` is the value of."""
    chance: Callable[[Setting], float] | None = None
    """The value that uniform attention, or a model that knows nothing, would have; nan where that is undefined."""

    @property
    def label_with_unit(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def attrs(self) -> dict[str, str | float]:
        """What is said of it beside its array, by the names of the CF conventions where they have one."""
        return self.attributes(None)

    def attributes(self, setting: Setting | None) -> dict[str, str | float]:
        """The same with its value at chance, where the setting says enough."""
        said = {
            "long_name": self.label, "units": self.unit, "formula": self.formula, "source": self.source,
            "probe": self.probe, "short_name": self.short, "palette": self.palette,
        }  # fmt: skip
        chance = self.at_chance(setting)
        maybe = {
            "valid_min": self.low, "valid_max": self.high, "worse": self.worse or None, "note": self.note or None,
            "chance": chance, "chance_text": self.chance_text if chance is not None else None,
        }  # fmt: skip
        return said | {name: value for name, value in maybe.items() if value is not None}

    def at_chance(self, setting: Setting | None) -> float | None:
        """`chance`, or None where there is no such value or the setting does not say enough."""
        value = self.chance(setting) if self.chance and setting else float("nan")
        return value if math.isfinite(value) else None


PROBES = {
    "text": "held-out text",
    "held_out": "held-out text that is never trained on",
    "repeat": "random tokens, repeated once at many distances",
    "control": "random tokens that do not repeat",
    "train": "the training batch",
    "weights": "the weights themselves",
    "prompts": "the fixed prompts of the run",
    "clock": "a clock or a counter",
}
"""How to name the probe of a measure beside its value."""


def probe_words(kind: str) -> dict[str, str]:
    """PROBES of a run of this kind; of the models of others no text was held out."""
    text = {"watched": "inputs of its first training batch", "opened": "passages of Python source"}
    held_out = {"watched": "the batches given as held_out, which are not trained on", "opened": text["opened"]}
    return {
        **PROBES, "text": text.get(kind, PROBES["text"]), "held_out": held_out.get(kind, PROBES["held_out"]),
    }  # fmt: skip
