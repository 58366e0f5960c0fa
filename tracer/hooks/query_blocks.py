"""Attention in blocks of queries: calls that are parts of one attention, joined before anybody looks.

1. A call may be the first part where it has fewer queries than the sequence has positions, and keys for all of these,
   or (causal code that cuts the future off) for its own queries only.
2. The next call of the same module, whose values begin with the same numbers, goes on where that part ended.
3. When as many queries have come as there are positions, the parts are one call; else each is an attention by itself.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from tracer.heads.call import AttentionCall
from tracer.hooks.sites import Key


@dataclass
class QueryBlocks:
    """The blocks of one attention that have come so far."""

    key: Key
    total: int
    """Positions of the sequence: as many queries will come."""
    calls: list[AttentionCall] = field(default_factory=list)

    @property
    def queries(self) -> int:
        return sum(call.shape[1] for call in self.calls)

    @property
    def complete(self) -> bool:
        return self.queries == self.total

    def goes_on(self, call: AttentionCall) -> bool:
        """Is this the next block?"""
        _, query_pos, key_pos = call.shape
        end = self.queries + query_pos
        whole = self.calls[0].shape[2] == self.total
        return call.n_heads == self.calls[0].n_heads and end <= self.total and (
            key_pos == (self.total if whole else end) and self._begins_as(call)
        )  # fmt: skip

    def shares(self, call: AttentionCall) -> bool:
        """Are its values of the same tensor, though it is not the next block?"""
        mine, its = self.calls[-1].v, call.v
        return mine.untyped_storage().data_ptr() == its.untyped_storage().data_ptr() or self._begins_as(call)

    def _begins_as(self, call: AttentionCall) -> bool:
        before, n = self.calls[-1].v, min(self.calls[-1].shape[2], call.shape[2])
        return before.shape[2:] == call.v.shape[2:] and torch.equal(before[:, :n], call.v[:, :n])


class OpenParts(threading.local):
    """The attention whose blocks are coming now, in this thread."""

    parts: QueryBlocks | None = None


def first_part(call: AttentionCall, n: int | None) -> int | None:
    """How many queries the attention has that this call may be the first block of; n: positions of the sequence."""
    query_pos, key_pos = call.shape[1:]
    if call.extra:
        return None
    if query_pos < key_pos and n in (None, key_pos):
        return key_pos
    return n if n is not None and query_pos == key_pos < n else None


@torch.no_grad()
def joined(calls: list[AttentionCall]) -> AttentionCall:
    """One call of what came in blocks; a key that a block was not given is hidden from its queries."""
    last, keys = calls[-1], calls[-1].shape[2]
    if last.weights is not None:
        weights = [F.pad(c.weights, (0, keys - c.shape[2])) for c in calls if c.weights is not None]
        largest, seen = ([getattr(c, name) for c in calls] for name in ("largest", "seen"))
        return replace(last, weights=torch.cat(weights, 2), largest=_below(largest), seen=_below(seen))
    masks = [_mask(call, keys) for call in calls]
    kind = torch.promote_types(masks[0].dtype, masks[-1].dtype)
    batch, heads = (max(mask.shape[axis] for mask in masks) for axis in (0, 1))
    masks = [(mask if mask.dtype == kind else _numbers(mask, kind)).expand(batch, heads, -1, -1) for mask in masks]
    q = torch.cat([c.q for c in calls if c.q is not None], 1)
    return replace(last, q=q, mask=torch.cat(masks, 2), causal=False)


def _below(rows: list[Tensor | None]) -> Tensor | None:
    there = [x for x in rows if x is not None]
    return torch.cat(there, 2) if len(there) == len(rows) else None


def _mask(call: AttentionCall, keys: int) -> Tensor:
    _, n, own = call.shape
    mask = call.full_mask()
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=call.v.device) if mask is None else mask
    hidden = False if mask.dtype == torch.bool else float("-inf")
    return F.pad(mask.expand(*mask.shape[:2], n, own), (0, keys - own), value=hidden)


def _numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of numbers from one that says which keys may be seen."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))
