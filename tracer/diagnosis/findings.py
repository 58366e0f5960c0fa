"""What a finding is, and what every search for one needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from tracer.config.field_docs import fields_in_help
from tracer.measures.aliases import Head

if TYPE_CHECKING:
    import xarray as xr

Severity = Literal["bad", "watch"]
Kind = Literal[
    "divergence", "leak", "rows", "targets", "one-token", "silent", "repeated", "positions", "overfit", "mismatch",
    "chance", "flat", "rounding", "one-hot", "vanishing", "stands-in", "collapse", "scores", "residual", "updates",
    "frozen", "unigram", "uniform", "clones", "dead", "idle",
]  # fmt: skip


@fields_in_help
@dataclass(frozen=True)
class Advice:
    """What helps, where the evidence singles it out; else what may be the cause, and what would tell."""

    remedy: str = ""
    """What helps; empty where the evidence leaves more than one cause."""
    candidates: tuple[str, ...] = ()
    """What may be the cause, where more than one is left."""
    tell: str = ""
    """What would tell them apart."""

    def texts(self) -> dict[str, str]:
        """Each text by its label on the screen."""
        told = {"What helps": self.remedy, "It may be": "; or ".join(self.candidates), "To tell which": self.tell}
        return {label: text for label, text in told.items() if text}


@fields_in_help
@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or may be."""

    kind: Kind
    """A key of `tracer.diagnosis.RULES`, or the name of a user's own rule."""
    severity: Severity
    """bad, or watch."""
    title: str
    """What is wrong, in a few words."""
    step: int
    """The first recorded step at which it held and after which it held to the end."""
    heads: tuple[Head, ...]
    """The heads it is about; empty when it is about the whole model."""
    evidence: str
    """The numbers it is found by, in a sentence."""
    advice: Advice
    """What to do about it."""
    source: str
    """Who says so."""


@fields_in_help
@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run, as far as it was measured."""

    findings: list[Finding]
    """The worst first."""
    looked_for: list[str]
    """Names of the rules that the run holds the numbers for."""
    not_measured: list[str]
    """Names of those that it does not."""
    texts: dict[Kind, str] = field(default_factory=dict)
    """When each kind is found, and why there."""
    wrong: list[str] = field(default_factory=list)
    """Of each rule of a user's that raised or gave no findings, which one it was, and why."""
    names: dict[Kind, str] = field(default_factory=dict)
    """The name of each kind's rule in `looked_for`."""
    early: bool = False
    """Was the loss of its training recorded in too few rows to be judged?"""


def values(trace: xr.Dataset, name: str) -> np.ndarray | None:
    """A variable as numpy, None where the run has not measured it."""
    known = name in trace and trace[name].dtype.kind in "biuf" and np.isfinite(trace[name].values).any()
    return trace[name].values if known else None


def finite_rows(trace: xr.Dataset, name: str) -> xr.Dataset:
    """The rows in which something has a value: a diverged run ends in nan."""
    known = np.isfinite(trace[name].values).reshape(trace.sizes["step"], -1).any(axis=1)
    return trace.isel(step=known)


def since(holds: np.ndarray) -> np.ndarray:
    """The first row from which a condition [step ...] holds until the last; the number of rows where it does not."""
    return len(holds) - np.cumprod(holds[::-1], axis=0).sum(axis=0)


def lasting(trace: xr.Dataset, holds: np.ndarray, records: int = 1) -> tuple[int, tuple[Head, ...]] | None:
    """The heads of which a condition [step layer head] holds at the last `records` records at least, and the step from
    which the first did."""
    first = since(holds)
    heads = heads_of(first <= len(holds) - records)
    return (int(trace["step"].values[int(first.min())]), heads) if heads else None


def heads_of(mask: np.ndarray) -> tuple[Head, ...]:
    return tuple((int(layer), int(head)) for layer, head in np.argwhere(mask))


def at_end(measure: np.ndarray, heads: tuple[Head, ...]) -> list[float]:
    """The last row of a measure [step layer head] in these heads."""
    return [float(measure[-1][head]) for head in heads]


def number(value: float) -> str:
    """1,234 or 0.123: as a person reads it."""
    return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.3g}"
