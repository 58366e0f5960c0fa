"""Head statistics of a pattern that already exists, from a model that makes its own."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.heads import definitions, pools
from tracer.heads.blocks import HeadStats, PerRow
from tracer.heads.definitions import SQUARE
from tracer.heads.row_block import OwnRows, RowBlock

ALL_KEYS = {"entropy", "entropy_normalised", "confidence"}
"""What a row does with all of its keys, whether they are positions or not."""


@torch.no_grad()
def stats_from_pattern(
    pattern: Float[Tensor, "batch head query_pos key_pos"],
    tokens: Int[Tensor, "batch query_pos"] | None = None,
    *,
    causal: bool,
    largest: PerRow | None = None,
    seen: Int[Tensor, "batch head query_pos"] | None = None,
    thumbs: int | None = None,
    extra: int = 0,
    own: OwnRows | None = None,
    v: Float[Tensor, "batch key_pos kv_head d_value"] | None = None,
) -> HeadStats:
    """What `stats` gives, from the weights themselves.

    Source: definitions in `tracer.heads.definitions`. Weights do not tell the scores: without `largest`, that of each
    row, max_logit and lse are nan. Nor do they tell which keys a mask hid: without `seen`, how many keys each row could
    see, entropy_normalised counts all keys (with `causal` those up to the query). A row of zeros saw no key. The last
    `extra` keys are no positions: entropies and the largest weight count them, what asks for positions does not.
    `own`: measures of a user's, which read a copy, with the values `v` of the keys.
    """
    query_pos, key_pos = pattern.shape[-2], pattern.shape[-1] - extra
    square = query_pos == key_pos
    if tokens is not None and not square:
        raise ValueError(f"{query_pos} queries and {key_pos} keys are not the same tokens: leave `tokens` out")
    pattern = pattern.to(torch.promote_types(pattern.dtype, torch.float32))
    empty = pattern.sum(-1) == 0
    undefined = torch.full_like(pattern[..., 0], float("nan"))
    if extra and seen is None:
        seen = (definitions.keys_seen(query_pos, key_pos, causal=causal, device=pattern.device) + extra).expand_as(
            empty
        )
    there = pattern[..., :key_pos]
    rows = {
        name: definitions.of_rows(name, pattern if name in ALL_KEYS else there, tokens, causal=causal)
        if square or name not in SQUARE
        else undefined
        for name in definitions.ROWS
        if tokens is not None or not definitions.asks_for(name, "tokens")
    }
    if seen is not None:
        rows["entropy_normalised"] = rows["entropy"] / torch.where(seen > 1, seen.to(pattern.dtype).log(), float("nan"))
    lse = (undefined if largest is None else largest - rows["confidence"].log()).masked_fill(empty, float("-inf"))
    if own is not None:
        vectors = {} if v is None else {"v": v[:, :key_pos].clone()}
        rows |= own(RowBlock(there.clone(), lse, 0, 0, causal, tokens, vectors))
    return HeadStats(
        rows={name: value.masked_fill(empty, float("nan")) for name, value in rows.items()},
        lse=lse,
        back=definitions.tokens_back(there if square else there[..., :0]).masked_fill(empty.unsqueeze(2), float("nan")),
        max_logit=undefined[..., 0] if largest is None else largest.masked_fill(empty, float("-inf")).amax(-1),
        thumbs=None if thumbs is None else pools.thumbs(there, thumbs),
    )
