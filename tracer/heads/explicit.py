"""Head statistics of a pattern that already exists, from a model that makes its own."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.heads import definitions, pools
from tracer.heads.blocks import HeadStats, PerRow
from tracer.heads.definitions import SQUARE


@torch.no_grad()
def stats_from_pattern(
    pattern: Float[Tensor, "batch head query_pos key_pos"],
    tokens: Int[Tensor, "batch query_pos"] | None = None,
    *,
    causal: bool,
    largest: PerRow | None = None,
    seen: Int[Tensor, "batch head query_pos"] | None = None,
    thumbs: int | None = None,
) -> HeadStats:
    """What `stats` gives, from the weights themselves.

    Source: definitions in `tracer.heads.definitions`. Weights do not tell the scores: without `largest`, that of each
    row, max_logit and lse are nan. Nor do they tell which keys a mask hid: without `seen`, how many keys each row could
    see, entropy_normalised counts all keys (with `causal` those up to the query). A row of zeros saw no key.
    """
    query_pos, key_pos = pattern.shape[-2:]
    square = query_pos == key_pos
    if tokens is not None and not square:
        raise ValueError(f"{query_pos} queries and {key_pos} keys are not the same tokens: leave `tokens` out")
    pattern = pattern.to(torch.promote_types(pattern.dtype, torch.float32))
    empty = pattern.sum(-1) == 0
    undefined = torch.full_like(pattern[..., 0], float("nan"))
    rows = {
        name: definitions.of_rows(name, pattern, tokens, causal=causal) if square or name not in SQUARE else undefined
        for name in definitions.ROWS
        if tokens is not None or not definitions.asks_for(name, "tokens")
    }
    if seen is not None:
        rows["entropy_normalised"] = rows["entropy"] / torch.where(seen > 1, seen.to(pattern.dtype).log(), float("nan"))
    return HeadStats(
        rows={name: value.masked_fill(empty, float("nan")) for name, value in rows.items()},
        lse=(undefined if largest is None else largest - rows["confidence"].log()).masked_fill(empty, float("-inf")),
        max_logit=undefined[..., 0] if largest is None else largest.masked_fill(empty, float("-inf")).amax(-1),
        thumbs=None if thumbs is None else pools.thumbs(pattern, thumbs),
    )
