"""Attention by distance: what the token so many places back gets, on average over the rows that have one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.heads import attention_by_offset
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import visiting
from tracer.model.protocol import HeadModel

FEWEST = 8
"""Rows of a pattern that a mean over a distance is taken of, at least."""


@dataclass(frozen=True)
class ByDistance:
    """Mean attention of every head by distance, the start token left out: heads rest on it."""

    values: Float[np.ndarray, "layer head offset"]
    """nan where a layer has fewer heads than others."""
    uniform: Float[np.ndarray, " offset"]
    """The same of heads that attend evenly."""
    rest: Float[np.ndarray, "layer head"]
    """Mean attention of the other tokens to the start token."""


def by_distance(model: HeadModel, tokens: Int[Tensor, "batch pos"]) -> ByDistance:
    """Mean of A[q, q - d] over the rows q that have such a key, each over at least FEWEST rows.

    Source: the off-diagonals of Olsson et al. 2022. On repeated tokens an induction head peaks at the period - 1.
    ValueError where the tokens have no such distance.
    """
    n = tokens.shape[1]
    if n <= FEWEST:
        raise ValueError(f"{n} tokens are too few for means by distance: more than {FEWEST} are needed")
    found = np.full((model.n_layers, model.n_heads, n - FEWEST), np.nan)
    rest = np.full(found.shape[:2], np.nan)

    def visit(call: AttentionCall) -> None:
        pattern = call.pattern()[..., : call.positions].cpu()
        found[call.layer, call.heads] = _without_start(pattern).mean(0).numpy()
        rest[call.layer, call.heads] = pattern[..., 1:, 0].mean((0, 2)).numpy()

    with torch.no_grad(), visiting(visit):
        model(tokens)
    return ByDistance(found, _without_start(torch.from_numpy(even(n))).numpy(), rest)


def _without_start(pattern: Float[Tensor, "*batch pos pos"]) -> Float[Tensor, "*batch offset"]:
    return attention_by_offset(pattern[..., 1:, 1:])[..., : pattern.shape[-1] - FEWEST]


def even(n: int) -> Float[np.ndarray, "n n"]:
    """The pattern of a head without preference: every position looks evenly at itself and all before it."""
    return np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]


@dataclass(frozen=True)
class Distances:
    """What one pattern gives to the position so many before, the start token among them."""

    shares: Float[np.ndarray, " offset"]
    even: Float[np.ndarray, " offset"]
    """The same of a head without a preference."""

    @property
    def best(self) -> int:
        """The distance that gets most, but for 0, the token itself."""
        return 1 + int(self.shares[1:].argmax())

    @property
    def prefers(self) -> bool:
        """Has it a favourite: at least twice what a head without a preference gives it? Ours."""
        return bool(self.shares[self.best] >= 2 * self.even[self.best])


def distances(pattern: Float[np.ndarray, "n n"], fewest: int = FEWEST) -> Distances:
    """Those of one pattern, such as `composition.position_pattern`."""
    n = len(pattern)
    means = (attention_by_offset(torch.from_numpy(one))[: n - fewest + 1].numpy() for one in (pattern, even(n)))
    return Distances(*means)
