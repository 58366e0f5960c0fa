"""Pieces of a pattern that never exists whole: a small picture of all of it, and windows at full size.

With lse, the normaliser of each row, every weight can be had alone: A_qk = exp(score_qk - lse_q). `stats` gives it.
Query and key heads are paired one to one here: pass a shared key head along with each of its query heads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from tracer.heads import masks, pools
from tracer.heads.blocks import LN2
from tracer.heads.masks import NO_KEY, Mask
from tracer.heads.tiles import budget, tiles

Queries = Float[Tensor, "*heads query_pos d_head"]
Keys = Float[Tensor, "*heads key_pos d_head"]
PerRow = Float[Tensor, "*heads query_pos"]
Picture = Float[Tensor, "*heads rows cols"]


@torch.no_grad()
def thumbnail(
    q: Queries,
    k: Keys,
    lse: PerRow,
    size: int,
    pool: Literal["mean", "max"],
    *,
    scale: float,
    causal: bool = True,
    mask: Mask | None = None,
) -> Picture:
    """The pattern in at most size x size cells: the largest or the mean weight of each.

    Source: `pools`. A cell at the end is smaller, and its mean is over the rows and keys it has; a hidden key counts,
    with weight 0. Costs 2 T^2 d_head FLOPs a head (half when causal); the mean also T^2 exponentials, the largest
    weight only one a cell, that of its largest score - lse. Memory: the picture, a copy of q and k, and a tile of
    scores (2 MB on a CPU).
    """
    query_pos, key_pos = q.shape[-2], k.shape[-2]
    cell_rows, cell_keys = pools.factor(query_pos, size), pools.factor(key_pos, size)
    shape = -(-query_pos // cell_rows), -(-key_pos // cell_keys)

    def picture(head: tuple[int, ...]) -> Float[Tensor, "rows cols"]:
        shift = _finite(lse[head]) / LN2
        cells = shift.new_full(shape, float("-inf") if pool == "max" else 0.0)
        for rows, t in _tiles_of_scores(q[head], k[head], scale, causal, _of(mask, q, head), cell_rows):
            t.sub_(shift[rows, None])
            if pool == "max":
                pooled = pools.max_pool(t, cell_rows, cell_keys, fill=float("-inf"))
            else:
                pooled = pools.sum_pool(t.exp2_(), cell_rows, cell_keys)
            row = rows.start // cell_rows
            into = cells[row : row + pooled.shape[0], : pooled.shape[1]]
            into.copy_(torch.maximum(into, pooled) if pool == "max" else into + pooled)
        if pool == "max":
            return cells.exp2_()
        heights, widths = pools.sizes(query_pos, cell_rows, shift), pools.sizes(key_pos, cell_keys, shift)
        return cells / torch.outer(heights, widths)

    return _by_head(picture, q)


@torch.no_grad()
def crop(
    q: Queries,
    k: Keys,
    lse: PerRow,
    rows: slice,
    cols: slice,
    *,
    scale: float,
    causal: bool = True,
    mask: Mask | None = None,
) -> Picture:
    """The pattern of the given query rows and key columns, exactly.

    Source: A_qk = exp(scale * q . k - lse_q). Costs 2 rows cols d_head FLOPs and rows cols floats a head, however
    long the context.
    """
    (top, bottom, _), (left, right, _) = rows.indices(q.shape[-2]), cols.indices(k.shape[-2])
    dtype = torch.promote_types(q.dtype, torch.float32)
    scores = (q[..., top:bottom, :].to(dtype) * scale) @ k[..., left:right, :].to(dtype).mT
    if mask is not None:
        mask = mask.view((1,) * (2 - mask.ndim) + tuple(mask.shape))
        mask = masks.part(mask, *(slice(None),) * (mask.ndim - 2), slice(top, bottom), slice(left, right))
        scores += masks.as_bias(mask, dtype)
    if causal:
        masks.hide_future_(scores, top - left)
    return scores.sub_(_finite(lse)[..., top:bottom, None]).exp_()


@torch.no_grad()
def lse(q: Queries, k: Keys, *, scale: float, causal: bool = True, mask: Mask | None = None) -> PerRow:
    """ln sum_k exp(scale * q . k) over the keys that each row sees; -inf where it sees none.

    Source: `HeadStats.lse`, without the rest. Costs and memory as the mean in `thumbnail`.
    """

    def of_rows(head: tuple[int, ...]) -> Float[Tensor, " query_pos"]:
        parts = []
        for _, t in _tiles_of_scores(q[head], k[head], scale, causal, _of(mask, q, head)):
            largest = t.amax(-1)
            total = t.sub_(largest[:, None]).exp2_().sum(-1)
            parts.append((LN2 * largest + total.log()).masked_fill_(largest < NO_KEY, float("-inf")))
        return torch.cat(parts)

    return _by_head(of_rows, q)


def _by_head(of_one: Callable[[tuple[int, ...]], Tensor], q: Queries) -> Tensor:
    """What `of_one` gives for each index of the leading axes, stacked."""
    heads = q.shape[:-2]
    values = torch.stack([of_one(head) for head in itertools.product(*map(range, heads))])
    return values.view(*heads, *values.shape[1:])


def _of(mask: Mask | None, q: Queries, head: tuple[int, ...]) -> Mask | None:
    """The mask of one head, with the axes [query_pos key_pos], each of full size or 1."""
    if mask is None:
        return None
    mask = mask.view((1,) * (2 - mask.ndim) + tuple(mask.shape))
    return mask.expand(*q.shape[:-2], *mask.shape[-2:])[head]


def _tiles_of_scores(
    q: Float[Tensor, "query_pos d_head"],
    k: Float[Tensor, "key_pos d_head"],
    scale: float,
    causal: bool,
    mask: Mask | None,
    cell_rows: int = 1,
) -> Iterator[tuple[slice, Float[Tensor, "rows keys"]]]:
    """Rows, and their masked scores in units of ln 2 against all keys they can see; the next tile overwrites them."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(dtype) * (scale / LN2), k.to(dtype).contiguous()
    cut = tiles(1, 1, 1, len(q), len(k), budget(len(k), q.device), cell_rows)
    scratch = q.new_empty(cut.largest)
    for rows in cut.rows:
        n_keys = min(rows.stop, len(k)) if causal else len(k)
        n_rows = rows.stop - rows.start
        t = torch.mm(q[rows], k[:n_keys].mT, out=scratch[: n_rows * n_keys].view(n_rows, n_keys))
        if mask is not None:
            t += masks.as_bias(masks.part(mask, rows, slice(n_keys)), dtype) / LN2
        if causal:
            masks.hide_future_(t[:, rows.start :])
        yield rows, t


def _finite(lse: PerRow) -> PerRow:
    """0 for a row without keys, whose scores then stay as low as they are."""
    return lse.masked_fill(lse == float("-inf"), 0.0)
