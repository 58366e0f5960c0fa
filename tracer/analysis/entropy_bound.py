"""How low the entropy of attention can be: a bound from the weights, and one from the scores themselves.

1. A row over T keys whose scores stand s from their mean (as a vector, l2) has at least the entropy of the sharpest
   such row: one key ahead, the other T - 1 alike.
2. Zhai et al. 2023, Theorem 3.1: s <= scale ||W_Q W_K^T||_2 ||X X^T||_2, X what the head reads, a row for each token.
   Both bounds are lower bounds. The second pays for knowing no more than norms: it is nearly always close to 0.
3. A causal row q is the last row of the first q + 1 tokens, so T = q + 1; X of all tokens has at least their norm.
4. A clamp may hide keys of a row: then T counts those that it sees.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.heads.definitions import entropy
from tracer.interventions.edits import recording
from tracer.model import QK_TAPS, Transformer

Heads = Float[Tensor, "layer head"]


class Bound(NamedTuple):
    """Of every head, means over sequences and rows q >= 1; entropies in nats."""

    entropy: Heads
    by_scores: Heads
    """The least that rows whose scores are as large as these could have."""
    by_weights: Heads
    """Zhai's bound: the least that any input of this size could have, given the weights."""
    score_size: Heads
    """||scores of a row - their mean||_2."""
    weight_size: Heads
    """scale ||W_Q W_K^T||_2 ||X X^T||_2, which is at least as large in every row."""


def lowest_entropy(size: Float[Tensor, "*#shape"], keys: Int[Tensor, "*#shape"]) -> Float[Tensor, "..."]:
    """ln(1 + (T-1) b) + s sqrt(T (T-1)) b / (1 + (T-1) b), b = exp(-s sqrt(T / (T-1))), of s = size and T = keys.

    Source: Zhai et al. 2023 (2303.06296), Theorem 3.1. Attained, so no better bound knows only s and T. ln T at s = 0,
    about T s exp(-s) for large s, 0 for one key. In float64.
    """
    size, keys = torch.broadcast_tensors(size.double(), keys.double())
    gap = size * (keys / (keys - 1).clamp_min(1)).sqrt()
    others = (keys - 1) * torch.exp(-gap)
    return torch.log1p(others) + torch.where(others > 0, gap * others / (1 + others), 0.0)


def qk_norm(
    W_Q: Float[Tensor, "*head d_model d_head"], W_K: Float[Tensor, "*head d_model d_head"]
) -> Float[Tensor, "*head"]:
    """||W_Q W_K^T||_2, the largest singular value, through d_head x d_head matrices."""
    left, right = (torch.linalg.qr(w.double()).R for w in (W_Q, W_K))
    return torch.linalg.matrix_norm(left @ right.mT, 2)


def score_sizes(
    scores: Float[Tensor, "*batch query_pos key_pos"], seen: Bool[Tensor, "*#batch query_pos key_pos"]
) -> Float[Tensor, "*batch query_pos"]:
    """||scores - their mean||_2 over the keys that a row sees; what softmax depends on has no mean."""
    scores = torch.where(seen, scores.double(), 0.0)
    centred = scores - scores.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
    return torch.where(seen, centred, 0.0).norm(dim=-1)


@torch.inference_mode()
def bound(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> Bound:
    """Entropy and both bounds of every head of a model, on these tokens.

    Rotary positions turn q and k, so no one matrix stands for W_Q W_K^T: there ||W_Q||_2 ||W_K||_2 is taken, which is
    no smaller. Everything from q and k on is in float64; nan in a layer whose numbers are not all finite, and of heads
    whose pattern q and k do not make alone: a clamp of one's own, a sink or a soft cap takes part. Where q and k are
    normed (qk_norm), or smeared, W_Q and W_K bound no score: the bound from weights is nan.
    """
    with recording(*QK_TAPS, "hook_resid_pre", "hook_pos_embed") as seen:
        model(tokens)
    layers = [_of_layer(model, layer, seen) for layer in range(model.n_layers)]
    return Bound(*(torch.stack(values) for values in zip(*layers, strict=True)))


def _of_layer(model: Transformer, layer: int, seen: dict[str, Tensor]) -> tuple[Float[Tensor, " head"], ...]:
    config, block = model.config, model.blocks[layer]
    x = block.attn_in(seen[f"blocks.{layer}.hook_resid_pre"])
    x = x + seen["hook_pos_embed"] if config.positions == "shortformer" else x
    q, k = (seen[name].double() for name in model.qk_taps(layer))
    scores = config.scale * einsum(q, k, "batch query head d, batch key head d -> batch head query key")
    sees = torch.ones(1, 1, *scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if (left := model.visible(layer, q)) is not None:
        sees = sees & left
    keys = sees.sum(-1)
    pattern = scores.masked_fill(~sees, -math.inf).softmax(-1)

    if not all(values.isfinite().all() for values in (x, q, k)):  # a snapshot of a run that diverged
        return (torch.full((model.n_heads,), math.nan, dtype=torch.float64),) * len(Bound._fields)
    W_Q, W_K = block.attn.W_Q.double(), block.attn.W_K.double()
    if config.qk_norm or config.smear != "none":
        spectral = torch.full((model.n_heads,), math.nan, dtype=torch.float64)
    elif config.positions == "rotary":
        spectral = torch.linalg.matrix_norm(W_Q, 2) * torch.linalg.matrix_norm(W_K, 2)
    else:
        spectral = qk_norm(W_Q, W_K)
    input_size = torch.linalg.matrix_norm(x.double(), 2) ** 2  # ||X X^T||_2 = ||X||_2^2
    from_weights = config.scale * einsum(input_size, spectral, "batch, head -> batch head").unsqueeze(-1)
    from_scores = score_sizes(scores, sees)

    made = torch.ones(model.n_heads)
    made[list(model.held(layer))] = math.nan

    def mean(rows: Float[Tensor, "batch head query"]) -> Float[Tensor, " head"]:
        return rows[..., 1:].mean((0, 2)) * made

    return (
        mean(entropy(pattern)), mean(lowest_entropy(from_scores, keys)), mean(lowest_entropy(from_weights, keys)),
        mean(from_scores), from_weights.mean((0, 2)) * made,
    )  # fmt: skip
