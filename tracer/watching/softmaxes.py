"""Attention by hand: a softmax is followed on its way to the values, through casts, dropouts and folds of heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from tracer.heads import masks

SAME_WEIGHTS = {"dropout", "to", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach"}
"""Functions after which a pattern is still the one before: casts, copies, and dropout, which is not part of it."""
RESHAPES = {"view", "reshape", "flatten", "unflatten"}
"""Functions that may fold heads into the batch axis, or unfold them."""


@dataclass(frozen=True)
class Soft:
    """A softmax on its way to the values, kept beside the tensor that it has become."""

    weights: Tensor | None
    """Before any dropout; None: that tensor itself, which this must not keep alive."""
    axis: int | None
    """The one that sums to 1."""
    largest: Tensor | None = None
    """The largest score of each row, when somebody looks; the last axis is 1."""
    seen: Tensor | None = None
    """How many keys no mask hid from each row."""

    def reshaped(self, weights: Tensor | None, shape: torch.Size, axis: int) -> Soft:
        """After a fold of the axes in front of [query, key]; shape: of the weights."""
        rows = (None if x is None else x.reshape(*shape[:-1], 1) for x in (self.largest, self.seen))
        return Soft(weights, axis, *rows)


class Softmaxes:
    """The tensors that are on their way now; each is forgotten with the last who holds it."""

    def __init__(self) -> None:
        self._of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, x: object) -> bool:
        return isinstance(x, Tensor) and x in self._of

    def __getitem__(self, x: Tensor) -> Soft:
        return self._of[x]

    def begin(self, result: Tensor, axis: int | None, scores: Tensor | None) -> None:
        """`result` is a softmax over `axis`; scores: what it was made of, where somebody looks."""
        rows = (None, None) if axis is None or scores is None else _rows_of(scores, axis)
        self._of[result] = Soft(None, axis, *rows)

    def follow(self, name: str, before: Any, after: Any) -> None:
        """A function of this name made `after` of `before`, which may be on its way."""
        if before not in self or not isinstance(after, Tensor) or after is before or not after.is_floating_point():
            return
        soft = self[before]
        weights = before if soft.weights is None else soft.weights
        if after.shape == before.shape:
            same = name in SAME_WEIGHTS
            self._of[after] = (
                replace(soft, weights=weights) if same else Soft(None, soft.axis, seen=_left(soft, before, after))
            )
        elif name in RESHAPES and soft.axis == before.ndim - 1 and _same_matrices(before, after):
            weights = weights if after.ndim == 3 else weights.reshape(after.shape)
            self._of[after] = soft.reshaped(weights, weights.shape, after.ndim - 1)


@torch.no_grad()
def _rows_of(scores: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The largest score of each row along `axis`, and how many keys it sees; that axis stays, with size 1."""
    seen = masks.visible(scores.movedim(axis, -1)).sum(-1)
    return scores.detach().amax(axis, keepdim=True), seen.unsqueeze(axis)


@torch.no_grad()
def _left(soft: Soft, before: Tensor, after: Tensor) -> Tensor | None:
    """How many keys each row sees once a mask after the softmax (a product, a fill) has made weights 0."""
    if soft.seen is None or soft.axis is None:
        return None
    return soft.seen - ((after == 0) & (before != 0)).sum(soft.axis, keepdim=True)


def _same_matrices(before: Tensor, after: Tensor) -> bool:
    """Were only the axes in front of [query, key] folded or unfolded?"""
    return {before.ndim, after.ndim} == {3, 4} and before.shape[-2:] == after.shape[-2:]
