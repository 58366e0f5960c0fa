"""Which heads, switched off where a phase ends, undo what it did to the losses by position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tracer.measures.change_points import before_and_after


@dataclass(frozen=True)
class Undoing:
    """What switching heads off at the end of a phase does, beside what the phase did; in nats."""

    moved: Float[np.ndarray, " pos"]
    """Mean loss at the end of the phase minus at its start."""
    without: Float[np.ndarray, "set pos"]
    """Change in mean loss with each set of heads off at the end."""

    @property
    def dots(self) -> Float[np.ndarray, " set"]:
        """Dot product of each change with the before-and-after vector; below 0 it undoes the phase."""
        return self.without @ before_and_after(np.zeros_like(self.moved), self.moved)

    @property
    def distance(self) -> float:
        """How far the phase itself moved the losses, along that vector."""
        return float(np.linalg.norm(self.moved))


def undoing(before: Float[np.ndarray, "batch pos"], after: Float[np.ndarray, "sets batch pos"]) -> Undoing:
    """Of the losses at the start of a phase, and of those at its end: first with all heads on, then with sets off.

    Both from `ablate.losses`. Source: Olsson et al. 2022, of single tokens; ours are means by position.
    """
    clean, *ablated = after.mean(1, dtype=float)
    return Undoing(clean - before.mean(0, dtype=float), np.stack(ablated) - clean)
