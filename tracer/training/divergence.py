"""Why a run went non-finite: train again from the last resume point with every tap watched.

1. The caller rewinds weights and optimiser, and replays the same batches (they are a pure function of seed and step).
2. Each replayed step records the largest magnitude at every tap, of every gradient and of every weight, per head where
   there are heads.
3. The first non-finite value in (step, order of computation) is the place; the first activation or gradient that grew
   GREW-fold since it was first not zero is the warning that came before it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from tracer.config.field_docs import fields_in_help
from tracer.diagnosis.growth import BEFORE, GREW
from tracer.interventions.edits import HEAD_AXIS

GRADIENT, WEIGHT = " (gradient)", " (weight)"
"""Ends of the names of what is no activation, beside BEFORE."""


@fields_in_help
@dataclass(frozen=True)
class Sighting:
    """Where a value was seen: `value` is the largest magnitude there (None when it was not finite)."""

    step: int
    """Of the update."""
    where: str
    """The tap, or the loss."""
    layer: int | None
    """None where it belongs to none."""
    head: int | None
    """None where it is no head's."""
    value: float | None
    """In magnitude; None: not finite."""

    def __str__(self) -> str:
        place = self.where
        if self.layer is not None:
            place += f" (layer {self.layer}" + (f", head {self.head})" if self.head is not None else ")")
        return f"step {self.step}: {place} " + ("is not finite" if self.value is None else f"reached {self.value:.3g}")


class Watch:
    """Magnitudes at every tap, step by step, until something is not finite."""

    def __init__(self) -> None:
        self.first_seen: dict[tuple[str, int | None], float] = {}
        self.exploding: Sighting | None = None
        self.non_finite: Sighting | None = None

    def look(self, step: int, tensors: dict[str, Tensor]) -> bool:
        """Examine tensors in order of computation; False as soon as one is not finite."""
        for name, tensor in tensors.items():
            for head, value in _magnitudes(name, tensor):
                layer = int(name.split(".")[1]) if name.startswith("blocks.") else None
                if not math.isfinite(value):
                    self.non_finite = Sighting(step, name, layer, head, None)
                    return False
                if name.endswith((WEIGHT, BEFORE)) or not value:  # a bias that starts at 0 may well grow
                    continue
                start = self.first_seen.setdefault((name, head), value)
                if self.exploding is None and value > GREW * max(start, 1e-6):
                    self.exploding = Sighting(step, name, layer, head, value)
        return True

    def report(self) -> dict[str, Any]:
        return {
            "non_finite": asdict(self.non_finite) if self.non_finite else None,
            "exploding": asdict(self.exploding) if self.exploding else None,
            "text": "; ".join(
                f"{label} {finding}"
                for label, finding in (("growing:", self.exploding), ("first non-finite value:", self.non_finite))
                if finding
            ),
        }


def _magnitudes(name: str, tensor: Tensor) -> list[tuple[int | None, float]]:
    """The largest magnitude, per head where there is a head axis; masked scores (-inf) do not count."""
    suffix = name.removesuffix(GRADIENT).removesuffix(WEIGHT).removesuffix(BEFORE).rpartition(".")[2]
    magnitude = tensor.detach().float()
    if suffix == "hook_attn_scores":
        magnitude = torch.where(magnitude == -torch.inf, 0.0, magnitude)
    magnitude = magnitude.abs()
    axis = HEAD_AXIS.get(suffix, 0 if suffix in ("W_Q", "W_K", "W_V", "W_O", "W_gate") else None)
    if axis is None:
        return [(None, _max(magnitude))]
    return [(head, _max(part)) for head, part in enumerate(magnitude.unbind(axis))]


def _max(magnitude: Tensor) -> float:
    return math.nan if magnitude.isnan().any() else float(magnitude.max())
