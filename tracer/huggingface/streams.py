"""A forward pass of a Hugging Face model as sums over who wrote what: `tracer.model.residual_stream` of it.

What is said is checked on the very pass: the parts must sum to the stream of every layer, and the scores rebuilt from
weights and stream must give the model's own patterns.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from tracer.huggingface.architectures import architecture_of
from tracer.huggingface.attention_weights import attention_weights, embedding, unembedding
from tracer.interventions.edits import active, recording
from tracer.model.residual_stream import AttentionPass, ResidualStream

CLOSE, STEPS = 1e-3, 3
"""Largest difference, relative to the largest number, that rounding may make; of coarse numbers in their own steps,
which is 2.3 % of bfloat16. What is said of such a model is as rough as what it computes."""


@torch.no_grad()
def residual_stream(model: Any, tokens: Int[Tensor, "batch pos"]) -> ResidualStream:
    """Of a `WrappedModel`. ValueError, with the layer, where the parts do not add up."""
    inner, n = model.model, model.n_layers
    wanted = ("hook_resid_pre", "hook_mlp_out", "hook_attn_out", "hook_z", "hook_rot_cos", "hook_rot_sin", "hook_alibi")
    last = f"blocks.{n - 1}.hook_resid_post"
    with recording(*wanted, last) as seen:
        logits = model(tokens)
    close = _close(seen[last].dtype)
    seen = {name: x.to(torch.promote_types(x.dtype, torch.float32)) for name, x in seen.items()}
    layers, known = [], architecture_of(inner)
    for i, layer in enumerate(model.layers):
        at = f"blocks.{i}.attn."
        turns = (seen[f"{at}hook_rot_cos"], seen[f"{at}hook_rot_sin"]) if f"{at}hook_rot_cos" in seen else None
        alibi = seen.get(f"{at}hook_alibi")
        layers.append(AttentionPass(
            attention_weights(inner, layer), seen[f"blocks.{i}.hook_resid_pre"], seen[f"{at}hook_z"], turns,
            score_bias=None if alibi is None else alibi.view(len(tokens), layer.n_heads, 1, -1),
        ))  # fmt: skip
    embed, final = embedding(inner, tokens), seen[last]
    pos = layers[0].resid_pre - embed if known.has_positions else None
    mlp_out = tuple(seen.get(f"blocks.{i}.hook_mlp_out") for i in range(n))
    found = ResidualStream(tokens, embed, pos, tuple(layers), mlp_out, final, unembedding(inner), logits)
    here = active()
    if here is None or not here.edits:  # edits break sums, which is not held against the model
        _check(model, found, seen, close)
    return found


@torch.no_grad()
def check_scores(model: Any) -> None:
    """ValueError where scores rebuilt from weights and stream give other patterns than the model's; once a model."""
    tokens = torch.arange(min(12, model.n_ctx))[None] % model.d_vocab
    tokens = tokens.to(next(model.model.parameters()).device)
    found = residual_stream(model, tokens)
    with recording("hook_pattern", first := "blocks.0.hook_resid_pre") as seen:
        model(tokens)
    close = 10 * _close(seen[first].dtype)
    for i, layer in enumerate(found.layers):
        pattern = seen[f"blocks.{i}.attn.hook_pattern"].to(found.final.dtype)[..., : tokens.shape[1]]
        for head in range(pattern.shape[1]):
            rebuilt = layer.seen_scores(layer.scores(head), head)
            hidden = pattern[:, head] == 0
            _same(model, f"the pattern of L{i}H{head}", rebuilt.masked_fill(hidden, -torch.inf).softmax(-1),
                  pattern[:, head], close)  # fmt: skip


def _check(model: Any, found: ResidualStream, seen: dict[str, Tensor], close: float) -> None:
    """What was read must add up to what was seen; edits in force break sums, and are not held against the model."""
    x = found.embed if found.pos_embed is None else found.embed + found.pos_embed
    for i, (layer, mlp) in enumerate(zip(found.layers, found.mlp_out, strict=True)):
        _same(model, f"what enters layer {i}", x, layer.resid_pre, close)
        _same(model, f"what the heads of layer {i} write", layer.attn_out, seen[f"blocks.{i}.hook_attn_out"], close)
        x = layer.resid_pre + layer.attn_out + (0 if mlp is None else mlp)
    _same(model, "what leaves the last layer", x, found.final, close)
    _same(model, "its logits", found.end(found.final), found.logits, close)


def _close(dtype: torch.dtype) -> float:
    return max(CLOSE, STEPS * torch.finfo(dtype).eps)


def _same(model: Any, what: str, found: Tensor, seen: Tensor, close: float) -> None:
    wrong = float((found - seen).abs().max()) / max(float(seen.abs().max()), 1e-9)
    if not wrong <= close:
        raise ValueError(
            f"the parts of this {type(model.model).__name__} do not add up: {what} is off by {wrong:.1%} of its "
            f"largest number, so nothing is said of its stream"
        )
