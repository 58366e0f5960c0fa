"""flex_attention seen through its own outputs: with the identity for values, what it returns is the pattern.

1. Under a watch compiled functions run as they were written, and flex_attention ends in one call of torch's operator:
   (query, key, value, score_mod, block mask, scale, options, ...) -> (output, lse, largest score).
2. That operator on value = 1 (the identity) gives the weights; the largest scores are its own.
3. With queries of zeros it gives a weight to every key that no mask, and no score_mod, hides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from tracer.heads.call import AttentionCall
from tracer.torch_internals import HigherOrderOperator

KEPT = {"mul", "__mul__", "to", "type_as", "float", "detach", "unsqueeze", "squeeze", "contiguous", "view", "reshape"}
"""Functions after which a normaliser is still one, in another unit or shape."""

Operator = Callable[..., tuple[Tensor, Tensor, Tensor]]


def is_flex(func: Any) -> bool:
    return isinstance(func, HigherOrderOperator) and func.__name__ == "flex_attention"


@torch.no_grad()
def call_of(func: Operator, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> AttentionCall:
    """The attention of a call of the operator, in float64; v [batch kv_head key_pos d]."""
    q, k = (x.detach().double() for x in (q, k))
    weights, _, largest = func(q, k, _identity(k), *others)
    seen = func(torch.zeros_like(q), k, _identity(k), *others)[0] > 0
    v = v.expand(len(q), -1, -1, -1).transpose(1, 2)
    return AttentionCall(
        0, v, weights=weights.to(torch.promote_types(v.dtype, torch.float32)), causal=False,
        largest=(largest * math.log(2)).unsqueeze(-1).to(v.dtype), seen=seen.sum(-1, keepdim=True),
    )  # fmt: skip


@torch.no_grad()
def blocks_fit(func: Operator, q: Tensor, k: Tensor, v: Tensor, score_mod: Any, blocks: Any, *others: Any) -> bool:
    """Do the blocks of a BlockMask, which only a compiled kernel obeys, hide no more and no less than its mask_mod?"""
    n, keys = q.shape[2], k.shape[2]
    rows, cols = torch.arange(n, device=q.device) // blocks[-3], torch.arange(keys, device=q.device) // blocks[-2]
    some, full = _visited(blocks[2], blocks[3], rows, cols), None
    if blocks[4] is not None:
        full = _visited(blocks[4], blocks[5], rows, cols)
        some = some | full
    if full is None and bool(some.all()):
        return True
    scores = others[:2]  # scale, options; the buffers are those of score_mod, which is left out, and of mask_mod
    weights = func(
        torch.zeros_like(q).double(), k.detach().double(), _identity(k), _unchanged, blocks, *scores, (), *others[3:]
    )[0]
    return not bool(((weights > 0) & ~some).any() or full is not None and (full & (weights == 0)).any())


def _identity(k: Tensor) -> Tensor:
    n = k.shape[2]
    return torch.eye(n, dtype=torch.float64, device=k.device).expand(k.shape[0], k.shape[1], n, n)


def _unchanged(score: Tensor, *_: Tensor) -> Tensor:
    return score


def _visited(counts: Tensor, indices: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """The blocks that are named, [batch head query_pos key_pos]."""
    there = torch.arange(indices.shape[-1], device=counts.device) < counts.unsqueeze(-1)
    n = int(max(indices.max(), cols.max())) + 1
    named = torch.zeros(*indices.shape[:-1], n, dtype=torch.int32, device=counts.device)
    named.scatter_add_(-1, indices.long().clamp(0, n - 1), there.int())
    return (named > 0)[..., rows, :][..., cols]


class Normalisers:
    """The lse that flex_attention returned: who works with them changes what it returned."""

    def __init__(self) -> None:
        self._of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __len__(self) -> int:
        return len(self._of)

    def begin(self, lse: Any) -> None:
        if isinstance(lse, Tensor):
            self._of[lse] = True

    def used(self, name: str, args: tuple[Any, ...], result: Any) -> bool:
        """Did a function of this name compute with one?"""
        given = [x for arg in args for x in (arg if isinstance(arg, (list, tuple)) else [arg])]
        if not isinstance(result, Tensor) or not any(isinstance(x, Tensor) and x in self._of for x in given):
            return False
        if name in KEPT:
            self._of[result] = True
        return name not in KEPT
