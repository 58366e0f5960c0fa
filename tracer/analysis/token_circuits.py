"""Heads in words: which tokens a head moves to which logits (OV), which tokens look at which (QK), by weights alone.

A circuit over the vocabulary is a product left @ right of [d_vocab d_head] and [d_head d_vocab]: its entries are made
block by block and only the largest are kept. Norms and rotations are left out. Source: Elhage et al. 2021.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 2**22
"""Entries that exist at a time: 16 MB."""


class Entries(NamedTuple):
    """The largest entries of a circuit, the largest first."""

    rows: Int[Tensor, " k"]
    cols: Int[Tensor, " k"]
    values: Float[Tensor, " k"]


def largest(
    left: Float[Tensor, "rows d_head"], right: Float[Tensor, "d_head cols"], k: int, *, apart: bool = False
) -> Entries:
    """The k largest entries of left @ right; `apart`: of those off its diagonal.

    2 rows cols d_head FLOPs, BLOCK + k entries of memory.
    """
    n_rows, n_cols = len(left), right.shape[1]
    k = min(k, n_rows * n_cols - apart * min(n_rows, n_cols))
    best, at = left.new_empty(0), torch.empty(0, dtype=torch.int64, device=left.device)
    step = max(1, BLOCK // n_cols)
    for start in range(0, n_rows, step):
        product = left[start : start + step] @ right
        if apart:
            product[:, start:].fill_diagonal_(-torch.inf)
        block = product.flatten()
        if len(best) == k > 0 and block.max() <= best[-1]:  # selecting costs more than the product
            continue
        values, index = block.topk(min(k, len(block)))
        best, at = torch.cat([best, values]), torch.cat([at, index + start * n_cols])
        best, kept = best.topk(min(k, len(best)))
        at = at[kept]
    return Entries(at // n_cols, at % n_cols, best)


def diagonal_rank(
    left: Float[Tensor, "d_vocab d_head"], right: Float[Tensor, "d_head d_vocab"]
) -> Int[Tensor, " d_vocab"]:
    """How many columns beat the diagonal in each row of left @ right: 0 where a token raises itself most.

    Source: Elhage et al. 2021 count how often the diagonal is the largest; at chance the mean is (d_vocab - 1) / 2.
    """
    n, ranks = len(left), []
    step = max(1, BLOCK // n)
    for start in range(0, n, step):
        block = left[start : start + step] @ right
        own = block.gather(1, torch.arange(start, start + len(block), device=left.device)[:, None])
        ranks.append((~(block <= own)).sum(1))  # of nan nothing is known to be the largest
    return torch.cat(ranks)


def copied(
    left: Float[Tensor, "d_vocab d_head"], right: Float[Tensor, "d_head d_vocab"], k: int
) -> tuple[float, Entries]:
    """The share of tokens that raise themselves more than any other, and the k of them that do it most."""
    first = diagonal_rank(left, right) == 0
    values, ids = (left * right.T).sum(1).where(first, -torch.inf).topk(min(k, int(first.sum())))
    return float(first.float().mean()), Entries(ids, ids, values)


def ov(
    W_E: Float[Tensor, "d_vocab d_model"],
    W_V: Float[Tensor, "d_model d_head"],
    W_O: Float[Tensor, "d_head d_model"],
    W_U: Float[Tensor, "d_model d_vocab"],
) -> tuple[Float[Tensor, "d_vocab d_head"], Float[Tensor, "d_head d_vocab"]]:
    """W_E W_V and W_O W_U, whose product is the OV circuit: row, the token that is looked at; column, the logit."""
    return W_E @ W_V, W_O @ W_U


def qk(
    W_E: Float[Tensor, "n d_model"], W_Q: Float[Tensor, "d_model d_head"], W_K: Float[Tensor, "d_model d_head"]
) -> tuple[Float[Tensor, "n d_head"], Float[Tensor, "d_head n"]]:
    """W_E W_Q and (W_E W_K)^T, whose product is the QK circuit: row, who looks; column, who is looked at.

    With W_pos for W_E it is the circuit of positions.
    """
    return W_E @ W_Q, (W_E @ W_K).T
