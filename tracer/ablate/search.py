"""The smallest set of heads that keeps a behaviour, or whose loss kills it, one greedy choice after the other.

1. Try every head that is left, in one batch, and take the one that moves the behaviour furthest; until the target.
2. Then drop, one by one, every head that is not needed: first choices are often blind ones, because an induction head
   without its previous-token head keeps nothing, nor the other way round.

Greedy sets are small, not surely smallest, and not the only ones: heads stand in for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.ablate.many_sets import losses
from tracer.ablate.parts import every_head
from tracer.ablate.planner import ready
from tracer.config.field_docs import fields_in_help
from tracer.data.probes import new_tokens, predictable
from tracer.huggingface.any_model import any_model
from tracer.interventions.replacements import Mode
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel

Behaviour = Callable[[Float[Tensor, "set batch loss_pos"]], Float[Tensor, " set"]]
"""From per-token losses to how much of the behaviour is there; 0 is none."""


@fields_in_help
@dataclass(frozen=True)
class Step:
    """One choice, and the share of the clean behaviour after it."""

    head: Head
    """(layer, head)."""
    taken: bool
    """False: it was in the set, and is not needed."""
    share: float
    """Of the clean behaviour, with the set as it is after this choice."""


@fields_in_help
@dataclass(frozen=True)
class Found:
    """A set of heads, in the order in which they were taken, and how it came to be."""

    heads: list[Head]
    """(layer, head), in the order in which they were taken."""
    share: float
    """Of the clean behaviour: with only these on (build_up), or with these off (knock_down)."""
    reached: bool
    """Did the share get as far as was asked?"""
    start: float
    """The share before the first choice."""
    steps: list[Step]
    """One a choice, those that took a head out again among them."""
    clean: float
    """The behaviour with all heads on, in its own units."""

    @property
    def curve(self) -> list[float]:
        """The share before the first choice and after each."""
        return [self.start, *(step.share for step in self.steps)]


def repeat_gain(loss: Float[Tensor, "set batch loss_pos"]) -> Float[Tensor, " set"]:
    """How much better tokens of Probe R are predicted when seen before: first_copy_loss - repeat_loss, in nats.

    Source: ours, after Olsson et al. 2022. The losses must be of whole rows of Probe R, 3 L of them.
    """
    period = loss.shape[-1] // 3
    return (loss[..., new_tokens(period)].mean(-1) - loss[..., predictable(period)].mean(-1)).mean(-1)


@any_model
def build_up(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    mode: Mode | str = "zero",
    *,
    behaviour: Behaviour | None = None,
    target: float = 0.9,
    **how: Any,
) -> Found:
    """The heads that keep `target` of a behaviour (default: `repeat_gain`) while all others are off.

    Further arguments as in `losses`.
    """
    return _search(model, tokens, mode, behaviour, target, keep=True, how=how)


@any_model
def knock_down(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    mode: Mode | str = "zero",
    *,
    behaviour: Behaviour | None = None,
    target: float = 0.9,
    **how: Any,
) -> Found:
    """The heads without which `target` of a behaviour (default: `repeat_gain`) is gone while all others are on.

    Further arguments as in `losses`.
    """
    return _search(model, tokens, mode, behaviour, target, keep=False, how=how)


def _search(
    model: HeadModel, tokens: Tensor, mode: Mode | str, behaviour: Behaviour | None, target: float, keep: bool,
    how: dict[str, Any],
) -> Found:  # fmt: skip
    ready(model, tokens)
    if not 0 < target <= 1:
        raise ValueError(f"target={target} is a share of the behaviour: above 0, and at most 1")
    behaviour = behaviour or _checked_repeat_gain(tokens)
    everything = every_head(model)

    def amounts(sets: list[list[Head]]) -> Float[Tensor, " set"]:
        off = [[head for head in everything if head not in heads] for heads in sets] if keep else sets
        return behaviour(losses(model, tokens, off, mode, **how)).double()

    clean = float(amounts([everything if keep else []]))
    if not clean > 0:
        raise ValueError(
            f"with every head on the behaviour amounts to {clean:.3g}: there is nothing to keep or to kill"
        )

    def good(share: Tensor) -> Bool[Tensor, "*set"]:
        return share >= target if keep else share <= 1 - target

    def shares(sets: list[list[Head]]) -> Float[Tensor, " set"]:
        return amounts(sets) / clean

    start = share = float(shares([[]]))
    heads, steps = [], []
    while not good(torch.tensor(share)) and len(heads) < len(everything):
        left = [head for head in everything if head not in heads]
        tried = shares([[*heads, head] for head in left])
        best = int(tried.argmax() if keep else tried.argmin())
        share = float(tried[best])
        heads.append(left[best])
        steps.append(Step(left[best], True, share))
    while good(torch.tensor(share)) and len(heads) > 1:
        tried = shares([[kept for kept in heads if kept != head] for head in heads])
        best = int(tried.argmax() if keep else tried.argmin())
        if not good(tried[best]):
            break
        share = float(tried[best])
        steps.append(Step(heads.pop(best), False, share))
    return Found(heads, share, bool(good(torch.tensor(share))), start, steps, clean)


def _checked_repeat_gain(tokens: Tensor) -> Behaviour:
    period = (tokens.shape[1] - 1) // 3
    before, again = tokens[:, : 2 * period + 1], tokens[:, 2 * period + 1 :]
    if period < 2 or again.shape[1] != period or not (before[:, None] == again[..., None]).any(-1).all():
        raise ValueError("these are not rows of Probe R (probes.repeated): give a behaviour=")
    return repeat_gain
