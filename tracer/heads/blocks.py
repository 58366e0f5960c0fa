"""Head statistics from q and k in row blocks: exact, in linear memory.

1. Take a tile: some sequences, heads and query rows whose scores fit in cache (`tiles`); the keys end where the rows
   end, so most of the causal triangle's empty half is never computed.
2. t = scores - row maximum, e = exp(t), Z = sum e. Then entropy = ln Z - sum(e t) / Z: both terms are at least 0 and
   small together, so entropies near 0 keep their relative precision (logsumexp minus the mean score loses it).
3. Every other statistic is an entry, or a weighted sum, of e / Z; z is one more matrix product while e is in cache.

Scores are kept in units of ln 2, because exp2 is four times faster than exp on a CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from tracer.heads import definitions, masks, pools
from tracer.heads.definitions import Keys, Queries, group_size, keys_seen
from tracer.heads.masks import NO_KEY, Mask
from tracer.heads.row_block import OwnRows, RowBlock
from tracer.heads.tiles import budget, tiles
from tracer.measures.setting import FARTHEST, farthest

LN2 = math.log(2)
LOWEST = -126.0
"""Where exp2(t) is cut off: 1e-38, the smallest normal float32; smaller results take a CPU 4 times longer."""
TINY = 1e-37
"""More than a hidden key weighs."""
ALL = slice(None)

PerRow = Float[Tensor, "batch head query_pos"]
Tile = Float[Tensor, "batch kv group rows keys"]
Copies = Float[Tensor, "batch 1 1 rows keys"]


@dataclass(frozen=True)
class HeadStats:
    """Statistics of every attention row; by the names of `definitions`.

    A row that sees no key is nan in all of them. Those of `definitions.SQUARE` are nan in cross attention, where
    queries and keys are counted apart.
    """

    rows: dict[str, PerRow]
    """By the name of the definition; without tokens, those that ask for tokens are missing."""
    lse: PerRow
    """ln sum_k exp(score), so that pattern = exp(score - lse); -inf in a row that sees no key."""
    max_logit: Float[Tensor, "batch head"]
    """The largest scaled score that is not masked; -inf if there is none."""
    back: Float[Tensor, "batch head distance query_pos"]
    """`definitions.tokens_back`, the mass on the token 2, 3, .. back; none in cross attention, and of some rows."""
    z: Float[Tensor, "batch query_pos head d_value"] | None = None
    """The heads' outputs, 0 in a row that sees no key; None without v."""
    thumbs: Float[Tensor, "batch head rows cols"] | None = None
    """The largest weight in each cell of the pattern; None unless asked for."""

    def __getitem__(self, name: str) -> PerRow:
        return self.rows[name]

    def sequences(self, at: slice) -> HeadStats:
        """Of these sequences of the batch alone."""
        z, thumbs = (None if part is None else part[at] for part in (self.z, self.thumbs))
        rows = {name: x[at] for name, x in self.rows.items()}
        return HeadStats(rows, self.lse[at], self.max_logit[at], self.back[at], z, thumbs)


class Sums(NamedTuple):
    """What a pass leaves of every row, before it is divided by `total`: all of them, or those of a tile."""

    largest: Tensor
    """The largest score, in units of ln 2."""
    total: Tensor
    """Z, the sum of e."""
    lost: Tensor
    """The sum of e t, in units of ln 2."""
    first_token: Tensor
    current_token: Tensor
    previous_token: Tensor
    attended_distance: Tensor
    duplicate_token: Tensor
    induction: Tensor


SHARES = Sums._fields[3:]
"""Sums that are their measure once divided by `total`."""
FUSED = {"entropy", "entropy_normalised", "confidence", *SHARES}
"""Measures that this pass has a form of its own for; any other is computed from each tile by its definition."""


@torch.no_grad()
def stats(
    q: Queries,
    k: Keys,
    tokens: Int[Tensor, "batch query_pos"] | None = None,
    *,
    scale: float,
    causal: bool = True,
    mask: Mask | None = None,
    v: Float[Tensor, "batch key_pos kv_head d_value"] | None = None,
    thumbs: int | None = None,
    only: slice | None = None,
    own: OwnRows | None = None,
    own_v: Float[Tensor, "batch key_pos kv_head d_value"] | None = None,
    block_scores: int | None = None,
) -> HeadStats:
    """Entropy, largest weight and the mass on special keys of every attention row, without storing a pattern.

    Source: definitions in `tracer.heads.definitions`. q and k as they enter the dot product (after rotary and norms);
    half precision is computed in float32. Scores must be scale * q . k plus `mask` and nothing else (no soft cap).
    Query head h reads key head h // (head // kv_head). `mask` and `causal` mean what they mean in
    F.scaled_dot_product_attention, and may be combined. With v, the heads' outputs z come from the same pass; with
    `thumbs`, so does the pattern, max-pooled to at most thumbs x thumbs cells (`pools`). `only` these query rows are
    computed: the others are nan, max_logit is theirs, and `back` has no distances. `own`: measures of a user's, which
    read each tile, with the values `own_v` where they are known.
    """
    batch, query_pos, head, _ = q.shape
    key_pos, kv_head = k.shape[1:3]
    group, square = group_size(head, kv_head), query_pos == key_pos
    if tokens is not None and not square:
        raise ValueError(f"{query_pos} queries and {key_pos} keys are not the same tokens: leave `tokens` out")
    assert only is None or (v is None and thumbs is None), "z and thumbs are of all rows"
    wanted = range(query_pos)[only or ALL]
    dtype = torch.promote_types(q.dtype, torch.float32)
    q = by_head(q, dtype, group, scale / LN2)
    k = by_head(k, dtype, 1).squeeze(2)
    if v is not None:
        v = by_head(v, dtype, 1).squeeze(2)
    if mask is not None:
        mask = masks.by_head(mask, (batch, head, query_pos, key_pos), group)

    cell_rows, cell_keys = (pools.factor(n, n if thumbs is None else thumbs) for n in (query_pos, key_pos))
    cut = tiles(batch, kv_head, group, query_pos, key_pos, block_scores or budget(key_pos, q.device), cell_rows)
    scratch_t, scratch_e = (q.new_empty(FARTHEST + cut.largest)[FARTHEST:] for _ in range(2))
    per_row = q.new_full((len(Sums._fields), batch, kv_head, group, query_pos), float("nan"))
    seen = keys_seen(query_pos, key_pos, causal=causal, device=q.device).expand(per_row.shape[1:]).contiguous()
    most = max(1, farthest(key_pos)) if square and only is None else 1
    back = q.new_full((*per_row.shape[1:4], most - 1, query_pos), float("nan"))
    others = {
        name: torch.full_like(per_row[0], float("nan"))
        for name in definitions.ROWS
        if name not in FUSED and not (tokens is None and definitions.asks_for(name, "tokens"))
    }  # fmt: skip
    unfused = {name: into for name, into in others.items() if square or name not in definitions.SQUARE}
    owned = {name: torch.full_like(per_row[0], float("nan")) for name in (() if own is None else own.names)}
    if owned and own_v is not None:
        own_v = by_head(own_v, dtype, 1).squeeze(2)
    z = scratch_z = small = None
    if v is not None:
        z = q.new_empty(batch, query_pos, kv_head, group, v.shape[-1])
        scratch_z = q.new_empty(cut.largest // key_pos * v.shape[-1])
    if thumbs is not None:
        small = q.new_zeros(batch, kv_head, group, -(-query_pos // cell_rows), -(-key_pos // cell_keys))

    for b in cut.sequences:
        for rows in cut.rows:
            rows = slice(max(rows.start, wanted.start), min(rows.stop, wanted.stop))
            if rows.start >= rows.stop:
                continue
            n_keys = min(rows.stop, key_pos) if causal else key_pos
            bias = copies = None
            if mask is not None:
                bias = masks.as_bias(masks.part(mask, b, ALL, ALL, rows, slice(n_keys)), dtype)
                seen[b, ..., rows] = masks.visible_keys(bias, rows, n_keys, causal=causal)
                bias /= LN2
            if tokens is not None:
                copies = _earlier_copies(tokens[b], rows, n_keys, dtype)
            for kv, g in cut.heads:
                q_tile, k_tile = q[b, kv, g, rows], k[b, kv, :n_keys].flatten(0, 1)
                shape = (*q_tile.shape[:-1], n_keys)
                t, e = (scratch[: math.prod(shape)].view(shape) for scratch in (scratch_t, scratch_e))
                tile = Sums(*per_row[:, b, kv, g, rows].unbind())

                torch.bmm(one_product(q_tile), k_tile.mT, out=one_product(t))
                if bias is not None:
                    t += masks.part(bias, ALL, kv, g, ALL, ALL)
                if causal:
                    masks.hide_future_(t[..., rows.start :])
                _softmax_sums(tile, t, e)
                tile.first_token.copy_(e[..., 0])
                if square:
                    _near_keys(tile, e, rows.start, causal, scratch=t)
                    _keys_back(back[b, kv, g, :, rows], e, rows.start, most)
                if copies is not None:
                    torch.sum(torch.mul(e, copies, out=t), -1, out=tile.duplicate_token)
                    torch.sum(torch.mul(e[..., 1:], copies[..., :-1], out=t[..., 1:]), -1, out=tile.induction)
                if v is None and small is None and not unfused and not owned:
                    continue
                share = tile.total.reciprocal()
                if bias is not None:
                    share.masked_fill_(tile.largest < NO_KEY, 0)
                share = share.unsqueeze(-1)
                for name, into in unfused.items():
                    weights = (e * share).flatten(1, 2)
                    value = definitions.of_rows(
                        name, weights, None if tokens is None else tokens[b], causal=causal, start=rows.start
                    )
                    into[b, kv, g, rows] = value.unflatten(1, e.shape[1:3])
                if own is not None and owned:
                    vectors = {"q": q_tile * (LN2 / scale), "k": k[b, kv, :n_keys]}
                    if own_v is not None:
                        vectors["v"] = own_v[b, kv, :n_keys]
                    lse = LN2 * tile.largest + tile.total.log()
                    block = RowBlock(
                        (e * share).flatten(1, 2), lse.flatten(1, 2), rows.start, b.start, causal,
                        None if tokens is None else tokens[b], {name: _by_pos(x) for name, x in vectors.items()},
                    )  # fmt: skip
                    for name, value in own(block).items():
                        owned[name][b, kv, g, rows] = value.unflatten(1, e.shape[1:3])
                if v is not None and z is not None and scratch_z is not None:
                    product = scratch_z[: math.prod(shape[:-1]) * v.shape[-1]].view(*shape[:-1], -1)
                    torch.bmm(one_product(e), v[b, kv, :n_keys].flatten(0, 1), out=one_product(product))
                    into = rearrange(z[b, rows, kv, g], "batch rows kv group d -> batch kv group rows d")
                    torch.mul(product, share, out=into)
                if small is not None:
                    pooled = pools.max_pool(e.mul_(share), cell_rows, cell_keys)
                    row = rows.start // cell_rows
                    into = small[b, kv, g, row : row + pooled.shape[-2], : pooled.shape[-1]]
                    torch.maximum(into, pooled, out=into)

    sums = Sums(*per_row.flatten(2, 3))
    empty = sums.largest < NO_KEY
    total = sums.total.masked_fill(empty, float("nan"))
    largest = torch.where(total.isnan(), float("nan"), sums.largest * LN2).masked_fill_(empty, float("-inf"))
    entropy = total.log() - LN2 * sums.lost / total
    seen = seen.flatten(1, 2).to(dtype)
    near = torch.arange(query_pos, device=q.device) <= torch.arange(most, 1, -1, device=q.device)[:, None]
    back = back.flatten(1, 2).div_(total.unsqueeze(2)).masked_fill_(near, float("nan")).flip(2)
    per_token = {name for name in SHARES if tokens is None and definitions.asks_for(name, "tokens")}
    return HeadStats(
        rows={
            "entropy": entropy,
            "entropy_normalised": entropy / torch.where(seen > 1, seen.log(), float("nan")),
            "confidence": 1 / total,
            **{name: getattr(sums, name) / total for name in SHARES if name not in per_token},
            **{name: value.flatten(1, 2).masked_fill_(empty, float("nan")) for name, value in (others | owned).items()},
        },
        lse=torch.where(empty, largest, largest + total.log()),
        max_logit=largest[..., only or ALL].amax(-1),
        back=back,
        z=None if z is None else z.flatten(2, 3),
        thumbs=None if small is None else small.masked_fill_(small < TINY, 0).flatten(1, 2),
    )


def by_head(
    x: Float[Tensor, "batch pos head d"], dtype: torch.dtype, group: int, scale: float = 1.0
) -> Float[Tensor, "batch kv group pos d"]:
    """The scaled vectors of a head side by side in memory; query heads that share a key head together."""
    x = rearrange(x.to(dtype), "batch pos (kv group) d -> batch kv group pos d", group=group)
    return torch.mul(x, scale, out=x.new_empty(x.shape))


def _by_pos(x: Float[Tensor, "batch *heads pos d"]) -> Float[Tensor, "batch pos head d"]:
    """Back to the order in which models have their vectors."""
    return rearrange(x, "batch ... pos d -> batch pos (...) d")


def one_product(x: Float[Tensor, "batch kv group rows d"]) -> Float[Tensor, "products group_rows d"]:
    """The heads that share keys one below the other, so that one matrix product serves them."""
    return rearrange(x, "batch kv group rows d -> (batch kv) (group rows) d")


def _softmax_sums(tile: Sums, t: Tile, e: Tile) -> None:
    """Turn scores t into e = 2^(t - maximum), and sum up; t is lost."""
    torch.amax(t, -1, out=tile.largest)
    torch.exp2(t.sub_(tile.largest.unsqueeze(-1)).clamp_(min=LOWEST), out=e)
    torch.sum(e, -1, out=tile.total)
    torch.sum(t.mul_(e), -1, out=tile.lost)


def _near_keys(tile: Sums, e: Tile, start: int, causal: bool, scratch: Tile) -> None:
    """The mass on the query's own position and the one before, and sum_k e |q - k|, for the rows from `start` on."""
    skip = int(start == 0)
    tile.current_token.copy_(e.diagonal(start, -2, -1))
    tile.previous_token[..., skip:].copy_(e[..., skip:, :].diagonal(start + skip - 1, -2, -1))
    rows, keys = (torch.arange(n, dtype=e.dtype, device=e.device) for n in e.shape[-2:])
    if causal:  # |q - k| = (q - start) + (start - k): a matrix-vector product, and no digits lost far from key 0
        torch.addcmul(e @ (start - keys), tile.total, rows, out=tile.attended_distance)
    else:
        apart = (rearrange(rows + start, "rows -> rows 1") - keys).abs_()
        torch.sum(torch.mul(e, apart, out=scratch), -1, out=tile.attended_distance)


def _keys_back(back: Tensor, e: Tile, start: int, most: int) -> None:
    """Entries `most` to 2 keys before the query, for the rows from `start` on, in one copy along the diagonal.

    Of the first rows that many keys lie before the row: what is read there is no weight, and nan once all is done.
    """
    n_keys, first = e.shape[-1], e.storage_offset() + start - most
    back.mT.copy_(e.as_strided((*e.shape[:-1], most - 1), (*e.stride()[:-2], n_keys + 1, 1), first))


def _earlier_copies(tokens: Int[Tensor, "batch pos"], rows: slice, n_keys: int, dtype: torch.dtype) -> Copies:
    """1 where an earlier key holds the query's token; floats, to multiply with."""
    same = tokens[:, rows, None] == tokens[:, None, :n_keys]
    return rearrange(same.tril(rows.start - 1).to(dtype), "batch rows keys -> batch 1 1 rows keys")
