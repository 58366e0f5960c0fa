"""Which keys a query may see, as numbers to add to its scores."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MASKED = -1e30
"""The score of a hidden key; finite, because exp(-inf) * -inf is nan."""
NO_KEY = MASKED / 2
"""The largest score of a row that sees no key is below this, that of any other row above."""
FAR_BELOW = 5000.0
"""A score so far below the largest of its row was masked, with -1e9, -1e4 or the like: none comes so low by itself."""

Mask = Bool[Tensor, "..."] | Float[Tensor, "..."]
Bias = Float[Tensor, "*axes rows_or_1 keys_or_1"]


def four_axes(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """The mask with the four axes [batch head query_pos key_pos], each of full size or 1."""
    given = (1,) * (4 - mask.ndim) + tuple(mask.shape)
    if len(given) > 4 or any(n not in (1, whole) for n, whole in zip(given, shape, strict=True)):
        raise ValueError(
            f"a mask of shape {list(mask.shape)} does not fit [batch head query_pos key_pos] = {list(shape)}: "
            "give each of its axes that size, or 1"
        )
    return mask.view(given)


def by_head(mask: Mask, shape: tuple[int, ...], group: int) -> Mask:
    """The mask as [batch kv_head group query_pos key_pos], each axis of full size or 1."""
    mask = four_axes(mask, shape)
    return mask.unflatten(1, (-1, group)) if mask.shape[1] > 1 else mask.unsqueeze(1)


def part(mask: Mask, *where: slice) -> Mask:
    """A piece of the mask; an axis of size 1 stands for every index."""
    return mask[tuple(slice(None) if n == 1 else index for index, n in zip(where, mask.shape, strict=True))]


def both(mask: Mask | None, seen: Bool[Tensor, "..."]) -> Mask:
    """A mask that also hides what is not `seen`."""
    if mask is None:
        return seen
    return mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, float("-inf"))


def as_bias(mask: Mask, dtype: torch.dtype) -> Float[Tensor, "..."]:
    """What to add to scaled scores: the mask's own number, or 0, where a key may be seen, and MASKED where not.

    Source: F.scaled_dot_product_attention (True may attend, numbers are added). -inf and the lowest number of the
    mask's type both hide a key.
    """
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, MASKED)
    hidden = mask <= max(MASKED, torch.finfo(mask.dtype).min)
    return mask.to(dtype).masked_fill(hidden, MASKED)


def hide_future_(scores: Float[Tensor, "*axes rows keys"], ahead: int = 0) -> None:
    """Mask, in place, the keys after the query, where the first query stands `ahead` positions after the first key."""
    hidden = torch.full(scores.shape[-2:], MASKED, dtype=scores.dtype, device=scores.device).triu_(1 + ahead)
    scores.tril_(ahead).add_(hidden)


def visible_keys(bias: Bias, rows: slice, n_keys: int, *, causal: bool) -> Int[Tensor, "*axes rows"]:
    """How many of the first n_keys keys each of the rows sees."""
    n_rows = rows.stop - rows.start
    seen = visible(bias).expand(*bias.shape[:-2], n_rows, n_keys)
    return (seen.tril(rows.start) if causal else seen).sum(-1)


def visible(scores: Float[Tensor, "*axes rows keys"]) -> Bool[Tensor, "*axes rows keys"]:
    """Which keys a row sees, read from its scores, or from the numbers that were added to them to hide keys."""
    return (scores > max(NO_KEY, torch.finfo(scores.dtype).min / 2)) & (scores > scores.amax(-1, True) - FAR_BELOW)
