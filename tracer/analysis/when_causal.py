"""Did a head's score rise before, with or after what it costs to switch it off? Arrays in, words out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

LEAST_SCORE = 0.1
"""A score that ends less than this above where it began has not risen. Ours."""
LEAST_EFFECT = 0.05
"""The same of an effect, in nats. Ours."""
STRONG = 0.4
"""A score above it looks like an induction head, as in `headsets`."""
COSTLY = 0.25
"""Nats from which an effect is one, as in `tracer.ablate.repair`."""


@dataclass(frozen=True)
class Rise:
    """When a curve passed half of its final value; `step` is None when it did not rise."""

    step: int | None
    final: float


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
    return Rise(int(x[below[-1] + 1]) if len(below) else int(x[0]), final)


def sentence(head: str, steps: ArrayLike, score: ArrayLike, effect: ArrayLike) -> str:
    """Before, with or after; two curves that pass within one snapshot of each other pass together."""
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
    at = [int(np.searchsorted(x, step)) for step in (scored.step, costs.step)]
    order = "with" if abs(at[0] - at[1]) <= 1 else "before" if at[0] < at[1] else "after"
    return (
        f"{head}: its induction score rose {order} its effect: half of its final {its_score} by step {scored.step}, "
        f"half of its final {its_effect} by step {costs.step}."
    )


def lookalikes(score: ArrayLike, effect: ArrayLike) -> list[tuple[int, int]]:
    """Heads [layer head] with a high score and no effect worth the name."""
    return _heads((np.asarray(score) > STRONG) & (np.asarray(effect) < COSTLY))


def hidden(score: ArrayLike, effect: ArrayLike) -> list[tuple[int, int]]:
    """Heads [layer head] with an effect and no score to tell it."""
    return _heads((np.asarray(score) <= STRONG) & (np.asarray(effect) >= COSTLY))


def _heads(where: np.ndarray) -> list[tuple[int, int]]:
    return [(int(layer), int(head)) for layer, head in np.argwhere(where)]
