"""How to read an update ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """A range of a measure, low <= value < high, and how to read it."""

    low: float
    high: float
    name: str
    text: str


UPDATE_BANDS = (
    Band(0.0, 1e-4, "slow", "barely moves: frozen, finished, or a learning rate that is too low"),
    Band(1e-4, 1e-2, "usual", "around 1e-3, the rule of thumb"),
    Band(1e-2, 1e-1, "fast", "usual for a while with Adam or Muon, a reason to look otherwise"),
    Band(1e-1, math.inf, "very fast", "a tenth of the weights is replaced every step: expect trouble"),
)
UPDATE_BANDS_SOURCE = (
    "The middle, 1e-3, is from CS231n's notes and Karpathy's nn-zero-to-hero, lecture 4, both for SGD; the edges of "
    "the bands are ours. A guide, not a law: with Adam and Muon the step does not follow from the gradient's size."
)


FOLLOWS_GRADIENT = ("sgd",)


def expected_range(optimiser: str | None) -> tuple[float, float]:
    """Between these an update ratio needs no look: `usual`, and where the step has a size of its own `fast` as well.

    Ours. Adam divides by the size of the gradient, Muon makes the update orthogonal: the learning rate sets the ratio.
    """
    usual, fast = UPDATE_BANDS[1], UPDATE_BANDS[2]
    own = optimiser is not None and optimiser not in FOLLOWS_GRADIENT
    return usual.low, fast.high if own else usual.high


def update_band(ratio: float) -> Band | None:
    """The band an update ratio falls in; None when it is undefined (nan)."""
    return next((band for band in UPDATE_BANDS if band.low <= ratio < band.high), None)
