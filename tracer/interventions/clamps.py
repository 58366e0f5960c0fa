"""Interventions that are held while a model trains: heads off, attention to the previous token forbidden or forced.

Source: Singh et al. 2024 (2404.07129), who clamp activations throughout training to see what a head needs to form.

1. off: z = 0 at every position, so that the head writes nothing and none of its weights gets a gradient.
2. no-previous: the score of key q - 1 is -inf, so that its mass is 0 and the rest of the row sums to 1.
3. previous: every other score is -inf, so that the pattern is 1 at q - 1 (row 0 sees itself); q and k learn nothing.
4. A pattern, or z, that a function of one's own returns: `tracer.interventions.own_clamps`.

They are part of the model: training sets `model.clamps` at every step, and `run.model(step)` comes with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from tracer.config import Clamp, TrainConfig
from tracer.interventions.edits import Edit
from tracer.interventions.own_clamps import OwnClamp
from tracer.named_code import NAMED


@dataclass(frozen=True)
class Hide(Edit):
    """The scores of keys that a clamp hides from these heads become -inf."""

    what: str = "no-previous"

    def __call__(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(~self.leaves(scores.shape[1], scores.shape[-1], scores.device), -torch.inf)

    def leaves(self, n_heads: int, n: int, device: torch.device) -> Bool[Tensor, "head query_pos key_pos"]:
        assert self.heads is not None
        mask = torch.ones(n_heads, n, n, dtype=torch.bool, device=device)
        mask[list(self.heads)] = visible(self.what, n, device)
        return mask


def edits(config: TrainConfig, step: int) -> list[Edit]:
    """The clamps of a step, for `Transformer.clamps`."""
    if not isinstance(config, TrainConfig):
        raise TypeError(f"clamps are of a TrainConfig, such as run.config, not of {type(config).__name__}")
    return [_edit(clamp, config.model.n_heads) for clamp in config.clamps if clamp.held(step)]


def _edit(clamp: Clamp, n_heads: int) -> Edit:
    where, heads = f"blocks.{clamp.layer}.attn", clamp.heads(n_heads)
    if clamp.code:
        return OwnClamp(f"{where}.hook_{clamp.what}", heads, clamp=clamp, function=NAMED.get(clamp.code))
    return (
        Edit(f"{where}.hook_z", heads)
        if clamp.what == "off"
        else Hide(f"{where}.hook_attn_scores", heads, what=clamp.what)
    )


def visible(what: str, n: int, device: torch.device | None = None) -> Bool[Tensor, "query_pos key_pos"]:
    """The keys that no-previous or previous leaves to a query (and the future, which the causal mask hides)."""
    rows = torch.arange(n, device=device)
    if what == "previous":
        return rows == (rows[:, None] - 1).clamp_(min=0)
    return rows != rows[:, None] - 1
