"""Head statistics of a pattern that already exists, from a model that makes its own."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.heads import definitions, pools
from tracer.heads.blocks import HeadStats


@torch.no_grad()
def stats_of(
    pattern: Float[Tensor, "batch head query_pos key_pos"],
    tokens: Int[Tensor, "batch query_pos"] | None = None,
    *,
    causal: bool,
    thumbs: int | None = None,
) -> HeadStats:
    """What `stats` gives, from the weights themselves.

    Source: definitions in `tracer.heads.definitions`. Weights do not tell the scores, so max_logit and lse are nan,
    nor which keys a mask hid, so entropy_normalised counts all keys (with `causal` those up to the query). A row of
    zeros saw no key.
    """
    query_pos, key_pos = pattern.shape[-2:]
    square = query_pos == key_pos
    if tokens is not None and not square:
        raise ValueError(f"{query_pos} queries and {key_pos} keys are not the same tokens: leave `tokens` out")
    pattern = pattern.to(torch.promote_types(pattern.dtype, torch.float32))
    empty = pattern.sum(-1) == 0
    undefined = torch.full_like(pattern[..., 0], float("nan"))

    def rows(values: Float[Tensor, "batch head query_pos"]) -> Float[Tensor, "batch head query_pos"]:
        return values.masked_fill(empty, float("nan"))

    return HeadStats(
        entropy=rows(definitions.entropy(pattern)),
        entropy_normalised=rows(definitions.entropy_normalised(pattern, causal=causal)),
        max_p=rows(definitions.max_p(pattern)),
        current=rows(definitions.current_token(pattern)) if square else undefined,
        previous=rows(definitions.previous_token(pattern)) if square else undefined,
        first=rows(definitions.first_token(pattern)),
        distance=rows(definitions.attended_distance(pattern)) if square else undefined,
        duplicate=None if tokens is None else rows(definitions.duplicate_token(pattern, tokens)),
        induction=None if tokens is None else rows(definitions.induction(pattern, tokens)),
        lse=undefined.masked_fill(empty, float("-inf")),
        max_logit=undefined[..., 0],
        thumbs=None if thumbs is None else pools.thumbs(pattern, thumbs),
    )
