"""Every head measure as a function of an attention pattern: the definition, and the oracle of the fast path.

A pattern is [... query_pos key_pos], its rows sum to 1. Each function gives one value per row; the caller averages.
`blocks.stats` computes the same values without ever holding a pattern.

A new head measure is a function here, marked `@measure_of_rows`, and a row of its name in `tracer.measures`. What it
may ask for beside the pattern: `tokens` of the sequence; `causal`; `start`, the position of the first row that it is
given. One that `blocks` has no faster form of must take `start`: it is called with a few rows of a pattern at a time.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.heads import masks
from tracer.heads.masks import Mask
from tracer.measures.setting import farthest

Queries = Float[Tensor, "batch query_pos head d_head"]
Keys = Float[Tensor, "batch key_pos kv_head d_head"]
Pattern = Float[Tensor, "*batch query_pos key_pos"]
Rows = Float[Tensor, "*batch query_pos"]

ROWS: dict[str, Callable[..., Tensor]] = {}
"""Every function of rows, by its name, which is that of its measure."""
SQUARE: set[str] = set()
"""Those that need queries and keys to be the same positions: nan in cross attention."""


def measure_of_rows(square: bool = False) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Marks a definition: the fused pass, the explicit form and the averages then know it by its name."""

    def mark(definition: Callable[..., Tensor]) -> Callable[..., Tensor]:
        ROWS[definition.__name__] = definition
        SQUARE.update({definition.__name__} if square else ())
        return definition

    return mark


@functools.cache
def asks_for(name: str, what: str) -> bool:
    """Does this definition take `tokens`, `causal` or `start`?"""
    return what in inspect.signature(ROWS[name]).parameters


def of_rows(
    name: str,
    pattern: Float[Tensor, "batch head query_pos key_pos"],
    tokens: Int[Tensor, "batch pos"] | None = None,
    *,
    causal: bool = True,
    start: int = 0,
) -> Float[Tensor, "batch head query_pos"]:
    """A measure by its name, given what it asks for."""
    wanted = {"tokens": tokens, "causal": causal, "start": start}
    return ROWS[name](pattern, **{what: value for what, value in wanted.items() if asks_for(name, what)})


def pattern(
    q: Queries, k: Keys, *, scale: float, causal: bool = True, mask: Mask | None = None
) -> Float[Tensor, "batch head query_pos key_pos"]:
    """softmax over visible keys of scale * q . k (plus a mask of numbers), all of it at once.

    Source: Vaswani et al. 2017, equation 1; `mask`, `causal` and a row that sees no key (0) as in
    F.scaled_dot_product_attention. Memory grows with query_pos * key_pos for every head: for one prompt, not a batch.
    """
    found = scores(q, k, scale=scale, causal=causal, mask=mask)
    return found.softmax(-1).masked_fill(found.amax(-1, keepdim=True) < masks.NO_KEY, 0)


def scores(
    q: Queries, k: Keys, *, scale: float, causal: bool, mask: Mask | None = None
) -> Float[Tensor, "batch head query_pos key_pos"]:
    """What `pattern` is the softmax of: scale * q . k plus the mask, about -1e30 where a key is hidden."""
    dtype, (head, kv_head) = torch.promote_types(q.dtype, torch.float32), (q.shape[2], k.shape[2])
    found = einsum(
        rearrange(
            q.to(dtype) * scale, "batch pos (kv group) d -> batch pos kv group d", group=group_size(head, kv_head)
        ),
        k.to(dtype),
        "batch query_pos kv group d, batch key_pos kv d -> batch kv group query_pos key_pos",
    ).flatten(1, 2)
    if mask is not None:
        found += masks.as_bias(masks.four_axes(mask, tuple(found.shape)), dtype)
    if causal:
        masks.hide_future_(found)
    return found


def group_size(head: int, kv_head: int) -> int:
    """How many query heads share each key head: query head h reads key head h // group_size.

    Source: Ainslie et al. 2023 (2305.13245), grouped queries.
    """
    if head % kv_head:
        raise ValueError(f"{head} query heads cannot share {kv_head} key heads: the second must divide the first")
    return head // kv_head


@measure_of_rows()
def entropy(pattern: Pattern) -> Rows:
    """-sum_k A_qk ln A_qk, in nats; exp of it is the effective number of keys.

    Source: Zhai et al. 2023 (2303.06296). 0 for one key, ln(q + 1) for uniform attention in a causal row q.
    """
    return torch.special.entr(pattern).sum(-1)


@measure_of_rows()
def entropy_normalised(pattern: Pattern, *, causal: bool = True) -> Rows:
    """Row entropy over the entropy of uniform attention to the keys the row can see.

    Source: ours. 0 for one key, 1 for uniform; nan where only one key can be seen (row 0 of a causal pattern).
    """
    seen = keys_seen(*pattern.shape[-2:], causal=causal, device=pattern.device).to(pattern.dtype)
    return entropy(pattern) / torch.where(seen > 1, seen.log(), float("nan"))


@measure_of_rows()
def confidence(pattern: Pattern) -> Rows:
    """max_k A_qk, the largest weight of the row.

    Source: Voita et al. 2019 (1905.09418), confidence of a head. 1 for one key.
    """
    return pattern.amax(-1)


@measure_of_rows(square=True)
def current_token(pattern: Pattern) -> Rows:
    """A_qq, the mass on the token itself.

    Source: ARENA 1.2 (there as a mean that includes row 0, where it is always 1).
    """
    return pattern.diagonal(dim1=-2, dim2=-1)


@measure_of_rows(square=True)
def previous_token(pattern: Pattern) -> Rows:
    """A_q,q-1, the mass on the token before.

    Source: Olsson et al. 2022, Methods. nan in row 0, which has no token before it.
    """
    before = pattern.diagonal(offset=-1, dim1=-2, dim2=-1)
    return torch.nn.functional.pad(before, (1, 0), value=float("nan"))


@measure_of_rows()
def first_token(pattern: Pattern) -> Rows:
    """A_q0, the mass on the first position, where heads rest when nothing matches.

    Source: Xiao et al. 2023 (2309.17453), attention sinks. Always 1 in row 0 of a causal pattern.
    """
    return pattern[..., 0]


@measure_of_rows(square=True)
def attended_distance(pattern: Pattern) -> Rows:
    """sum_k A_qk |q - k|, the mean distance in tokens to what the row attends to.

    Source: Vig & Belinkov 2019 (1906.04284), attention distance, here by row. q / 2 for uniform attention in a causal
    row q.
    """
    positions = torch.arange(pattern.shape[-1], dtype=pattern.dtype, device=pattern.device)
    return (pattern * (rearrange(positions, "query_pos -> query_pos 1") - positions).abs()).sum(-1)


def tokens_back(pattern: Pattern) -> Float[Tensor, "*batch distance query_pos"]:
    """A_q,q-d, the mass on the token d back, of d = 2, 3, .. `measures.farthest` of the row's length.

    Source: derived here; d = 1 is `previous_token`. nan in rows q <= d, which have no token there or the first one.
    """
    n = pattern.shape[-1]
    found = pattern.new_full((*pattern.shape[:-2], max(0, farthest(n) - 1), pattern.shape[-2]), float("nan"))
    for d in range(2, farthest(n) + 1):
        found[..., d - 2, d + 1 :] = pattern.diagonal(offset=-d, dim1=-2, dim2=-1)[..., 1:]
    return found


@measure_of_rows()
def duplicate_token(
    pattern: Float[Tensor, "*batch head query_pos key_pos"], tokens: Int[Tensor, "*batch pos"]
) -> Float[Tensor, "*batch head query_pos"]:
    """The mass on earlier keys that hold the same token as the query.

    Source: Wang et al. 2022 (2211.00593); the mask of transformer_lens.head_detector, summed by row.
    """
    return (pattern * earlier_copies(tokens).unsqueeze(-3)).sum(-1)


@measure_of_rows()
def induction(
    pattern: Float[Tensor, "*batch head query_pos key_pos"], tokens: Int[Tensor, "*batch pos"]
) -> Float[Tensor, "*batch head query_pos"]:
    """The mass on keys that come right after an earlier copy of the query's token: prefix matching.

    Source: Olsson et al. 2022, Methods (erratum of 2022-09-20), as mass per row so that the ideal head scores 1.
    The key may be the query itself, when the token before it is the same.
    """
    after = torch.nn.functional.pad(earlier_copies(tokens), (1, 0))[..., :-1]
    return (pattern * after.unsqueeze(-3)).sum(-1)


def attention_by_offset(
    pattern: Float[Tensor, "*batch query_pos key_pos"],
) -> Float[Tensor, "*batch offset"]:
    """Mean attention to the key `offset` positions back, over the rows that have one.

    Source: the off-diagonals of Olsson et al. 2022. On a block and its copy an induction head peaks at the period - 1.
    """
    n = pattern.shape[-1]
    return torch.stack([pattern.diagonal(offset=-d, dim1=-2, dim2=-1).mean(-1) for d in range(n)], -1)


def earlier_copies(tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch pos pos"]:
    """True at [query, key] when the key comes before the query and holds the same token."""
    return (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).tril(-1)


def keys_seen(
    query_pos: int, key_pos: int, *, causal: bool, device: torch.device | None = None
) -> Int[Tensor, " query_pos"]:
    """How many keys each row can see; query 0 stands at key 0."""
    if causal:
        return torch.arange(1, query_pos + 1, device=device).clamp_(max=key_pos)
    return torch.full((query_pos,), key_pos, device=device)
