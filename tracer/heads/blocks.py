"""Head statistics from q and k in row blocks: exact, in linear memory.

1. Take some heads (and, for short contexts, some sequences) and up to 128 query rows, so that their scores fit in
   cache; the keys end where the rows end, so most of the causal triangle's empty half is never computed.
2. t = scores - row maximum, e = exp(t), z = sum e. Then entropy = ln z - sum(e t) / z: both terms are at least 0 and
   small together, so entropies near 0 keep their relative precision (logsumexp minus the mean score loses it).
3. Every other statistic is an entry, or a masked sum, of e / z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from tracer.heads.definitions import keys_seen

CPU_SCORES = 2**18
"""1 MB of float32: what stays in a core's cache."""
GPU_SCORES = 2**25
"""128 MB of float32: few launches, little memory."""
MAX_ROWS = 128
MASKED = -1e30
"""The score of a hidden key; finite, because exp(-inf) * -inf is nan."""
LOWEST = -87.0
"""Where exp(t) is cut off: 1e-38, the smallest normal float32; for smaller results exp is 5 times slower on a CPU."""

PerRow = Float[Tensor, "batch head query_pos"]


@dataclass(frozen=True)
class HeadStats:
    """Statistics of every attention row; definitions in `definitions`, field by field."""

    entropy: PerRow
    entropy_normalised: PerRow
    """nan in row 0."""
    max_p: PerRow
    current: PerRow
    previous: PerRow
    """nan in row 0."""
    first: PerRow
    duplicate: PerRow | None
    """None without tokens."""
    induction: PerRow | None
    """None without tokens."""
    max_logit: Float[Tensor, "batch head"]
    """The largest scaled score that is not masked."""


@torch.no_grad()
def stats(
    q: Float[Tensor, "batch pos head d_head"],
    k: Float[Tensor, "batch pos head d_head"],
    tokens: Int[Tensor, "batch pos"] | None = None,
    *,
    scale: float,
    causal: bool = True,
    block_scores: int | None = None,
) -> HeadStats:
    """Entropy, largest weight and the mass on special keys of every attention row, without storing a pattern.

    Source: definitions in `tracer.heads.definitions`. q and k as they enter the dot product (after rotary and norms);
    half precision is computed in float32. Scores must be scale * q . k and nothing else (no bias, no soft cap).
    """
    batch, pos, head, _ = q.shape
    dtype = torch.promote_types(q.dtype, torch.float32)
    q = rearrange(q.to(dtype) * scale, "batch pos head d_head -> batch head pos d_head").contiguous()
    k = rearrange(k.to(dtype), "batch pos head d_head -> batch head pos d_head").contiguous()

    budget = block_scores or (CPU_SCORES if q.device.type == "cpu" else GPU_SCORES)
    rows = max(1, min(pos, MAX_ROWS, budget // pos))
    heads = min(head, max(1, budget // (rows * pos)))
    sequences = min(batch, max(1, budget // (rows * pos * head)))
    scratch_t, scratch_e = q.new_empty(2, sequences * heads * rows * pos)
    future = torch.ones(rows, rows, dtype=torch.bool, device=q.device).triu(1)

    entropy, total, current, first, max_score = q.new_empty(5, batch, head, pos)
    previous = q.new_full((batch, head, pos), float("nan"))
    duplicate, induction = q.new_empty(2, batch, head, pos)

    for b in range(0, batch, sequences):
        for start in range(0, pos, rows):
            stop = min(start + rows, pos)
            n_keys = stop if causal else pos
            if tokens is not None:
                copies = _earlier_copies(tokens[b : b + sequences], start, stop, n_keys, dtype)
            for h in range(0, head, heads):
                here = (slice(b, b + sequences), slice(h, h + heads), slice(start, stop))
                q_block, k_block = q[here], k[here[:2]][:, :, :n_keys]
                shape = (*q_block.shape[:3], n_keys)
                t, e = (scratch[: math.prod(shape)].view(shape) for scratch in (scratch_t, scratch_e))

                torch.bmm(q_block.flatten(0, 1), k_block.flatten(0, 1).mT, out=t.flatten(0, 1))
                if causal:
                    t[..., start:].masked_fill_(future[: stop - start, : stop - start], MASKED)
                maximum = t.amax(-1, keepdim=True)
                torch.exp(t.sub_(maximum).clamp_(min=LOWEST), out=e)
                z = e.sum(-1)
                entropy[here] = z.log() - t.mul_(e).sum(-1) / z
                total[here] = z
                max_score[here] = maximum.squeeze(-1)

                current[here] = e.diagonal(offset=start, dim1=-2, dim2=-1)
                first[here] = e[..., 0]
                skip = int(start == 0)
                previous[here][..., skip:] = e[..., skip:, :].diagonal(start + skip - 1, dim1=-2, dim2=-1)
                if tokens is not None:
                    duplicate[here], induction[here] = _copied_mass(e, copies, t)

    seen = keys_seen(pos, causal=causal, device=q.device).to(dtype)
    return HeadStats(
        entropy=entropy,
        entropy_normalised=entropy / torch.where(seen > 1, seen.log(), float("nan")),
        max_p=1 / total,
        current=current / total,
        previous=previous / total,
        first=first / total,
        duplicate=None if tokens is None else duplicate / total,
        induction=None if tokens is None else induction / total,
        max_logit=max_score.amax(-1),
    )


def _earlier_copies(
    tokens: Int[Tensor, "batch pos"], start: int, stop: int, n_keys: int, dtype: torch.dtype
) -> Float[Tensor, "batch 1 query_pos key_pos"]:
    """1 where an earlier key holds the query's token, for the query rows start .. stop; floats, to multiply with."""
    same = tokens[:, start:stop, None] == tokens[:, None, :n_keys]
    return rearrange(same.tril(start - 1).to(dtype), "batch query_pos key_pos -> batch 1 query_pos key_pos")


def _copied_mass(
    e: Float[Tensor, "batch head query_pos key_pos"],
    copies: Float[Tensor, "batch 1 query_pos key_pos"],
    scratch: Float[Tensor, "batch head query_pos key_pos"],
) -> tuple[PerRow, PerRow]:
    """Row sums of e over the earlier copies of the query's token, and over the keys right after them."""
    duplicate = torch.mul(e, copies, out=scratch).sum(-1)
    induction = torch.mul(e[..., 1:], copies[..., :-1], out=scratch[..., 1:]).sum(-1)
    return duplicate, induction
