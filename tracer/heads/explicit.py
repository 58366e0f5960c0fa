"""Head statistics of a pattern that already exists, from a model that makes its own."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.heads import definitions, pools
from tracer.heads.blocks import HeadStats, PerRow


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
    entropy, max_p = definitions.entropy(pattern), definitions.max_p(pattern)
    if seen is None:
        normalised = definitions.entropy_normalised(pattern, causal=causal)
    else:
        normalised = entropy / torch.where(seen > 1, seen.to(pattern.dtype).log(), float("nan"))
    undefined = torch.full_like(pattern[..., 0], float("nan"))

    def rows(values: Float[Tensor, "batch head query_pos"]) -> Float[Tensor, "batch head query_pos"]:
        return values.masked_fill(empty, float("nan"))

    return HeadStats(
        entropy=rows(entropy),
        entropy_normalised=rows(normalised),
        max_p=rows(max_p),
        current=rows(definitions.current_token(pattern)) if square else undefined,
        previous=rows(definitions.previous_token(pattern)) if square else undefined,
        first=rows(definitions.first_token(pattern)),
        distance=rows(definitions.attended_distance(pattern)) if square else undefined,
        duplicate=None if tokens is None else rows(definitions.duplicate_token(pattern, tokens)),
        induction=None if tokens is None else rows(definitions.induction(pattern, tokens)),
        lse=(undefined if largest is None else largest - max_p.log()).masked_fill(empty, float("-inf")),
        max_logit=undefined[..., 0] if largest is None else largest.masked_fill(empty, float("-inf")).amax(-1),
        thumbs=None if thumbs is None else pools.thumbs(pattern, thumbs),
    )
