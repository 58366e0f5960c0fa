"""Did a head's score rise before, with or after what it costs to switch it off? Arrays in, words out.

The two have different units, so only rises that do not overlap are in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tracer.config.field_docs import fields_in_help

LEAST_SCORE = 0.1
"""A score that ends less than this above where it began has not risen. Ours."""
LEAST_EFFECT = 0.05
"""The same of an effect, in nats. Ours."""
STRONG = 0.4
"""A score above it looks like an induction head, as in `headsets`."""
COSTLY = 0.25
"""Nats from which an effect is one, as in `tracer.ablate.self_repair`."""


BEGUN, DONE = 0.1, 0.9
"""Shares of its final value between which a curve is rising."""


@fields_in_help
@dataclass(frozen=True)
class Rise:
    """When a curve passed half of its final value; the steps are None when it did not rise."""

    step: int | None
    """The first from which on the curve stays at half of its final value or more."""
    final: float
    """The last value that is a number."""
    start: int | None = None
    """The last step before that at which it was below a tenth of it; the first of all if there is none."""
    end: int | None = None
    """The first from there on at nine tenths of it."""


def rise(steps: ArrayLike, values: ArrayLike, least: float) -> Rise:
    """The first step from which a curve is at half of its final value or more, and stays there until the end."""
    x, y = np.asarray(steps), np.asarray(values, float)
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    if not len(y):
        return Rise(None, float("nan"))
    final = float(y[-1])
    if final < least or final - y[0] < least:
        return Rise(None, final)
    below = np.flatnonzero(y < final / 2)
    half = int(below[-1]) + 1 if len(below) else 0
    low = np.flatnonzero(y[:half] < BEGUN * final)
    end = half + int(np.argmax(y[half:] >= DONE * final))
    return Rise(int(x[half]), final, int(x[low[-1]] if len(low) else x[0]), int(x[end]))


def sentence(head: str, steps: ArrayLike, score: ArrayLike, effect: ArrayLike) -> str:
    """Before, after or with: an order is said where one has risen before the other begins to.

    A score is a share and an effect is in nats, and half of the way in one unit is not half in another: seen as a
    probability and as its logarithm, one event has two middles. A rise from 10 to 90 % of the way has room for both.
    """
    x = np.asarray(steps)
    scored, costs = rise(x, score, LEAST_SCORE), rise(x, effect, LEAST_EFFECT)
    its_score, its_effect = f"{scored.final:.2f}", f"{costs.final:+.2f} nats".replace("-", "\u2212")
    if scored.step is None and costs.step is None:
        return f"{head} rose in neither: its score ends at {its_score}, its effect at {its_effect}."
    if scored.step is None:
        return (
            f"{head}: its effect passed half of its final {its_effect} by step {costs.step}; its induction score never "
            f"rose (it ends at {its_score}), so it does something else that repeated tokens need."
        )
    if costs.step is None:
        return (
            f"{head}: its induction score passed half of its final {its_score} by step {scored.step}; switching it off "
            f"alone never came to cost much (it ends at {its_effect}). Others may do the same work."
        )
    assert scored.start is not None and scored.end is not None and costs.start is not None and costs.end is not None
    order = "before" if scored.end <= costs.start else "after" if costs.end <= scored.start else ""
    said = f"rose {order} its effect" if order else "and its effect rose together"
    rises = (
        f"the score from step {scored.start} to {scored.end} (final {its_score}), the effect from step {costs.start} "
        f"to {costs.end} (final {its_effect})"
    )
    why = "" if order else " Their units differ, so an order is said only where one rise ends before the other begins."
    return f"{head}: its induction score {said}: {rises}.{why}"


def lookalikes(score: ArrayLike, effect: ArrayLike) -> list[tuple[int, int]]:
    """Heads [layer head] with a high score and no effect worth the name."""
    return _heads((np.asarray(score) > STRONG) & (np.asarray(effect) < COSTLY))


def hidden(score: ArrayLike, effect: ArrayLike) -> list[tuple[int, int]]:
    """Heads [layer head] with an effect and no score to tell it."""
    return _heads((np.asarray(score) <= STRONG) & (np.asarray(effect) >= COSTLY))


def _heads(where: np.ndarray) -> list[tuple[int, int]]:
    return [(int(layer), int(head)) for layer, head in np.argwhere(where)]
