"""One layer's attention on one input, whoever wrote the model: what enters the softmax, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor

from tracer.config.field_docs import fields_in_help
from tracer.heads import masks
from tracer.heads.blocks import HeadStats, stats
from tracer.heads.definitions import Keys, Queries, pattern, scores
from tracer.heads.explicit import stats_from_pattern
from tracer.heads.row_block import OwnRows, RowBlock
from tracer.heads.row_maxima import row_maxima


@fields_in_help
@dataclass(frozen=True)
class AttentionCall:
    """q, k and v as they enter the dot product; or, from a model that makes its pattern itself, `weights` and v."""

    layer: int
    """Counted from 0 over the modules that attend."""
    v: Float[Tensor, "batch key_pos kv_head d_value"]
    """Values; kv_head may be fewer than head (grouped queries)."""
    q: Queries | None = None
    """Queries; None where `weights` are given."""
    k: Keys | None = None
    """Keys; None where `weights` are given."""
    scale: float = 1.0
    """Scores are q k times this."""
    causal: bool = True
    """May a query see no later position?"""
    mask: Tensor | None = None
    """As in F.scaled_dot_product_attention, boolean (True: may attend) or added to the scaled scores, always with the
    four axes [batch head query_pos key_pos], each of full size or 1."""
    weights: Float[Tensor, "batch head query_pos key_pos"] | None = None
    """What a model that computes its own pattern multiplies v with, before any dropout."""
    largest: Float[Tensor, "batch head query_pos 1"] | None = None
    """Where weights are a softmax of scores that were seen: the largest score of each row,"""
    seen: Int[Tensor, "batch head query_pos 1"] | None = None
    """and how many keys no mask hid from it."""
    extra: tuple[str, ...] = ()
    """What the last keys are, where these are no positions: "bias_k" (learned), "zero", or "sink" (it has no value, so
    that v is 0 there, and the weights of the positions sum to less than 1)."""
    divided: Float[Tensor, "batch head query_pos 1"] | None = None
    """Where weights are no softmax: what each row was divided by, so that none sums to more than 1."""
    first_head: int = 0
    """Where these heads begin in their layer: a model may compute one head at a time."""

    @property
    def n_heads(self) -> int:
        return self.weights.shape[1] if self.weights is not None else self._qk[0].shape[2]

    @property
    def heads(self) -> slice:
        """Where these heads stand in their layer."""
        return slice(self.first_head, self.first_head + self.n_heads)

    @property
    def shape(self) -> tuple[int, int, int]:
        """batch, query positions, key positions."""
        batch, key_pos = self.v.shape[:2]
        return batch, self.weights.shape[2] if self.weights is not None else self._qk[0].shape[1], key_pos

    @property
    def has_values(self) -> bool:
        """Are its values known? v is empty where they are not."""
        return self.v.shape[3] > 0

    @property
    def positions(self) -> int:
        """Keys that are positions of the sequence."""
        return self.shape[2] - len(self.extra)

    @property
    def _qk(self) -> tuple[Tensor, Tensor]:
        assert self.q is not None and self.k is not None
        return self.q, self.k

    @torch.no_grad()
    def stats(
        self, tokens: Int[Tensor, "batch pos"] | None = None, *, z: bool = False, thumbs: int | None = None,
        own: OwnRows | None = None,
    ) -> HeadStats:  # fmt: skip
        """Statistics of every row of every head, and `own` ones; with `z` the heads' outputs from the same pass."""
        with torch.autocast(self.v.device.type, enabled=False):
            if self.weights is not None:
                largest, seen = (None if x is None else x.squeeze(-1) for x in (self.largest, self.seen))
                softmax = self.divided is None
                found = stats_from_pattern(
                    self.weights, tokens, causal=self.causal, largest=largest if softmax else None, seen=seen,
                    thumbs=thumbs, extra=len(self.extra), own=own, v=self.v if self.has_values else None,
                )  # fmt: skip
                return found if softmax or largest is None else replace(found, max_logit=largest.amax(-1))
            if self.extra:
                whole = self._explicit()
                found = whole.stats(tokens, thumbs=thumbs, own=own)
                return replace(found, z=values(whole.pattern(), self.v)) if z else found
            own_v = self.v if own is not None and self.has_values else None
            return stats(
                *self._qk, tokens, scale=self.scale, causal=self.causal, mask=self.mask,
                v=self.v if z else None, thumbs=thumbs, own=own, own_v=own_v,
            )  # fmt: skip

    @torch.no_grad()
    def row_maxima(self) -> Float[Tensor, "batch head query_pos"]:
        """The largest score of each row; -inf where it sees no key, nan where its scores were not seen."""
        with torch.autocast(self.v.device.type, enabled=False):
            call = self._explicit() if self.extra and self.weights is None else self
            if call.weights is None:
                return row_maxima(*call._qk, scale=call.scale, causal=call.causal, mask=call.mask)
            if call.largest is None:
                return call.weights.new_full(call.weights.shape[:3], float("nan"))
            largest = call.largest.squeeze(-1)
            return largest if call.seen is None else largest.masked_fill(call.seen.squeeze(-1) == 0, float("-inf"))

    @torch.no_grad()
    def pattern(
        self, rows: slice | Int[Tensor, " rows"] = slice(None)
    ) -> Float[Tensor, "batch head query_pos key_pos"]:
        """The exact pattern of some query rows (default: all, which is query_pos * key_pos floats a head)."""
        with torch.autocast(self.v.device.type, enabled=False):
            if self.weights is not None:
                return self.weights[:, :, rows]
            q, k = self._qk
            return pattern(q[:, rows], k, scale=self.scale, causal=False, mask=self.full_mask(rows))

    def mixing(self, rows: slice) -> Float[Tensor, "batch head query_pos key_pos"]:
        """What the model multiplies v with: the pattern, undivided."""
        found = self.pattern(rows)
        return found if self.divided is None else found * self.divided[:, :, rows]

    @torch.no_grad()
    def row_block(self, rows: Int[Tensor, " rows"], tokens: Int[Tensor, "batch pos"] | None = None) -> RowBlock:
        """Query rows, each as far from the next, as a measure of one's own reads them: a copy."""
        whole, last = self.pattern(rows).float(), self.positions
        vectors = {"v": self.v[:, :last].clone()}
        if self.weights is None:
            q, k = self._qk
            with torch.autocast(self.v.device.type, enabled=False):
                found = scores(q[:, rows], k, scale=self.scale, causal=False, mask=self.full_mask(rows))
            lse, vectors = found.float().logsumexp(-1), vectors | {"q": q[:, rows], "k": k[:, :last].clone()}
        elif self.largest is None or self.divided is not None:
            lse = torch.full_like(whole[..., 0], float("nan"))
        else:
            lse = self.largest[:, :, rows].squeeze(-1) - whole.amax(-1).log()
        lse = lse.masked_fill(whole.sum(-1) == 0, float("-inf"))
        start, apart = int(rows[0]), int(rows[1] - rows[0]) if len(rows) > 1 else 1
        return RowBlock(whole[..., :last], lse, start, 0, self.causal, tokens, vectors, apart)

    def full_mask(self, rows: slice | Int[Tensor, " rows"] = slice(None)) -> Tensor | None:
        """Mask and causality of some query rows as one mask; positions ahead are hidden, extra keys are not."""
        mask = self.mask[:, :, rows] if self.mask is not None and self.mask.shape[2] > 1 else self.mask
        if not self.causal:
            return mask
        queries, keys = (torch.arange(n, device=self.v.device) for n in self.shape[1:])
        seen = rearrange(queries[rows], "query_pos -> query_pos 1") >= keys
        seen[:, self.positions :] = True
        return masks.both(mask, seen[None, None])

    def _explicit(self) -> AttentionCall:
        """The same call from its pattern, all of it at once: for keys that are no positions."""
        found = scores(*self._qk, scale=self.scale, causal=False, mask=self.full_mask())
        largest = found.amax(-1, keepdim=True)
        return replace(
            self, weights=found.softmax(-1).masked_fill_(largest < masks.NO_KEY, 0), largest=largest,
            seen=masks.visible(found).sum(-1, keepdim=True), q=None, k=None, mask=None,
        )  # fmt: skip

    def head(self, index: int) -> AttentionCall:
        """The same of one head alone."""
        one = slice(index, index + 1)
        group = index // (self.n_heads // self.v.shape[2])
        shared = slice(group, group + 1)
        mask = self.mask[:, one] if self.mask is not None and self.mask.shape[1] > 1 else self.mask
        return replace(
            self, q=None if self.q is None else self.q[:, :, one], k=None if self.k is None else self.k[:, :, shared],
            v=self.v[:, :, shared], weights=None if self.weights is None else self.weights[:, one], mask=mask,
            largest=None if self.largest is None else self.largest[:, one],
            seen=None if self.seen is None else self.seen[:, one],
            divided=None if self.divided is None else self.divided[:, one], first_head=self.first_head + index,
        )  # fmt: skip

    def sequences(self, rows: Int[Tensor, " rows"]) -> AttentionCall:
        """The same of some sequences of the batch; a mask that all of them share stays one."""

        def of(x: Tensor | None) -> Tensor | None:
            return x if x is None or len(x) == 1 < len(self.v) else x[rows.to(x.device)]

        return replace(
            self, q=of(self.q), k=of(self.k), v=self.v[rows.to(self.v.device)], weights=of(self.weights),
            largest=of(self.largest), seen=of(self.seen), divided=of(self.divided), mask=of(self.mask),
        )  # fmt: skip

    def first(self, n: int, values: bool = True) -> AttentionCall:
        """A detached copy of the first n sequences, which keeps nothing else alive; v is empty without `values`."""

        def cut(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.detach()[:n].clone()

        v = self.v.detach()[:n, ..., : None if values else 0].clone()
        return replace(
            self, q=cut(self.q), k=cut(self.k), v=v, weights=cut(self.weights), largest=cut(self.largest),
            seen=cut(self.seen), divided=cut(self.divided), mask=cut(self.mask),
        )  # fmt: skip

    @torch.no_grad()
    def weight(
        self, key: Int[Tensor, " batch"], lse: Float[Tensor, "batch head query_pos"]
    ) -> Float[Tensor, "batch head query_pos"]:
        """The weight of one key, another in each sequence, in every row, whose normalisers are `lse`."""
        at = rearrange(key, "batch -> batch 1 1 1")
        if self.weights is not None:
            return self.weights.gather(3, at.expand(*self.weights.shape[:3], 1)).squeeze(3).to(lse)
        q, k = self._qk
        k = k[torch.arange(len(key), device=key.device), key]
        k = k.to(lse).repeat_interleave(self.n_heads // k.shape[1], 1)
        scores = einsum(q.to(lse), k, "batch query_pos head d, batch head d -> batch head query_pos") * self.scale
        if self.mask is not None:
            mask = self.mask.expand(len(key), -1, -1, self.shape[2]).gather(3, at.expand(-1, *self.mask.shape[1:3], 1))
            scores = scores + masks.as_bias(mask, lse.dtype).squeeze(3)
        return (scores - lse).exp()


def values(pattern: Tensor, v: Tensor) -> Float[Tensor, "batch query_pos head d_value"]:
    """z from a pattern [batch head query_pos key_pos] and v, whose heads may be shared by groups."""
    groups = pattern.shape[1] // v.shape[2]
    v = repeat(v, "batch key_pos kv_head d -> batch (kv_head groups) key_pos d", groups=groups)
    return rearrange(pattern.to(v.dtype) @ v, "batch head query_pos d -> batch query_pos head d")


def merged(calls: list[AttentionCall]) -> AttentionCall:
    """One layer whose heads were computed by several calls, head after head, as one."""
    if len(calls) == 1:
        return calls[0]

    def beside(name: str, axis: int) -> Tensor | None:
        there = [x for call in calls if (x := getattr(call, name)) is not None]
        return torch.cat(there, axis) if there else None

    axes = {"q": 2, "k": 2, "v": 2, "weights": 1, "largest": 1, "seen": 1, "divided": 1}
    whole: dict[str, Any] = {name: beside(name, axis) for name, axis in axes.items()}
    return replace(calls[0], **whole)


Visitor = Callable[[AttentionCall], "Tensor | None"]
"""Looks at a call; may return z [batch query_pos head d_value], which then stands for the model's own computation."""
