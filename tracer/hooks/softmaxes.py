"""Attention by hand: a softmax is followed on its way to the values.

1. Casts, copies, dropouts and folds of heads leave it the pattern that it was.
2. A sink is a score with no value: its column is cut off behind the softmax, and the pattern keeps it.
3. Whatever else changes it on its way, in place or not: what then multiplies the values is the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from tracer.heads import masks
from tracer.torch_internals import version

SAME_WEIGHTS = {"dropout", "to", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach"}
"""Functions after which a pattern is still the one before: casts, copies, and dropout, which is not part of it."""
RESHAPES = {"view", "reshape", "flatten", "unflatten"}
"""Functions that may fold heads into the batch axis, or unfold them."""
CUTS = {"__getitem__", "narrow"}
"""Functions that may leave keys out, at one end."""


@dataclass(frozen=True)
class Soft:
    """A softmax on its way to the values, kept beside the tensor that it has become."""

    weights: Tensor | None
    """Before any dropout; None: that tensor itself, which this must not keep alive."""
    axis: int | None
    """The one that sums to 1."""
    largest: Tensor | None = None
    """The largest score of each row, when somebody looks; the axis of keys is 1."""
    seen: Tensor | None = None
    """How many keys no mask hid from each row."""
    cut: Literal["first", "last"] | None = None
    """Where keys were cut off that have no value; `weights` has them still."""
    version: int | None = None
    """How often the tensor had been changed in place; None: nobody counts (torch.inference_mode)."""
    dropped: bool = False
    """Has it been through a dropout?"""

    def reshaped(self, weights: Tensor, axis: int) -> Soft:
        """After a fold of the axes in front of [query, key]."""
        largest, seen = (None if x is None else x.reshape(*weights.shape[:-1], 1) for x in (self.largest, self.seen))
        return replace(self, weights=weights, axis=axis, largest=largest, seen=seen)


class Softmaxes:
    """The tensors that are on their way now; each is forgotten with the last who holds it."""

    def __init__(self) -> None:
        self._of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, x: object) -> bool:
        return isinstance(x, Tensor) and x in self._of

    def begin(self, result: Tensor, axis: int | None, scores: Tensor | None) -> None:
        """`result` is a softmax over `axis`; scores: what it was made of, where somebody looks."""
        rows = (None, None) if axis is None or scores is None else _rows_of(scores, axis)
        self._put(result, Soft(None, axis, *rows))

    def follow(self, name: str, before: Any, after: Any) -> None:
        """A function of this name made `after` of `before`, which may be on its way."""
        if before not in self:
            return
        if name.endswith("_") and not name.startswith("__") or name.startswith(("__i", "__setitem__")):
            self._changed(before)
        if not isinstance(after, Tensor) or after is before or not after.is_floating_point():
            return
        soft = self._of[before]
        weights = before if soft.weights is None else soft.weights
        if after.shape == before.shape:
            if name in SAME_WEIGHTS:
                self._put(after, replace(soft, weights=weights, dropped=soft.dropped or name == "dropout"))
            else:
                self._put(after, Soft(None, soft.axis, seen=_left(soft, before, after)))
        elif name in RESHAPES and soft.axis == before.ndim - 1 and _same_matrices(before, after):
            if after.ndim == 4:
                weights = weights.reshape(*after.shape[:2], *weights.shape[-2:])
            self._put(after, soft.reshaped(weights, after.ndim - 1))
        elif name in CUTS and soft.cut is None and (cut := _cut(before, after, soft.axis)):
            self._put(after, replace(soft, weights=weights, cut=cut))

    def at_values(self, x: Tensor) -> Soft:
        """What is known of a tensor on its way when it has come to the values."""
        soft = self._of[x]
        if soft.version is not None:
            stale = version(x) != soft.version
        else:
            before = None if soft.dropped or soft.cut is not None else soft.weights
            stale = before is not None and not torch.equal(x, before.to(x.dtype).view_as(x))
        if stale:
            self._changed(x)
        return self._of[x]

    def _put(self, x: Tensor, soft: Soft) -> None:
        self._of[x] = replace(soft, version=None if x.is_inference() else version(x))

    @torch.no_grad()
    def _changed(self, x: Tensor) -> None:
        """It was changed in place: the pattern is what it is now, and keys are seen that have a weight."""
        soft = self._of[x]
        weights, seen = soft.weights, None
        if weights is not None and weights.untyped_storage().data_ptr() != x.untyped_storage().data_ptr():
            weights = None
        now = x if weights is None else weights
        if soft.seen is not None and soft.axis is not None and soft.seen.ndim == now.ndim:
            seen = soft.seen.minimum((now != 0).sum(-1 if weights is not None else soft.axis, keepdim=True))
        cut = None if weights is None else soft.cut
        self._put(x, Soft(weights, soft.axis, seen=seen, cut=cut))


@torch.no_grad()
def _rows_of(scores: Tensor, axis: int) -> tuple[Tensor | None, Tensor]:
    """The largest score of each row along `axis`, and how many keys it sees; that axis stays, with size 1."""
    last = scores.detach().movedim(axis, -1)
    visible = masks.visible(last)
    largest = scores.detach().amax(axis, keepdim=True)
    if not bool(largest.any()) and bool(last.where(visible, 0).any()):  # subtracted before: nobody knows what it was
        return None, visible.sum(-1).unsqueeze(axis)
    return largest, visible.sum(-1).unsqueeze(axis)


@torch.no_grad()
def _left(soft: Soft, before: Tensor, after: Tensor) -> Tensor | None:
    """How many keys each row sees once a mask after the softmax (a product, a fill) has made weights 0."""
    if soft.seen is None or soft.axis is None:
        return None
    return soft.seen - ((after == 0) & (before != 0)).sum(soft.axis, keepdim=True)


def _cut(before: Tensor, after: Tensor, axis: int | None) -> Literal["first", "last"] | None:
    """Which keys a view of the others leaves out."""
    if axis is None or after.untyped_storage().data_ptr() != before.untyped_storage().data_ptr():
        return None
    there = [n for i, n in enumerate(before.shape) if i != axis]
    if [n for i, n in enumerate(after.shape) if i != axis] != there or after.stride() != before.stride():
        return None
    start = (int(after.storage_offset()) - int(before.storage_offset())) // before.stride(axis)
    if start == 0:
        return "last"
    return "first" if start + after.shape[axis] == before.shape[axis] else None


def _same_matrices(before: Tensor, after: Tensor) -> bool:
    """Were only the axes in front of [query, key] folded or unfolded?"""
    return {before.ndim, after.ndim} == {3, 4} and before.shape[-2:] == after.shape[-2:]
