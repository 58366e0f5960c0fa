"""A forward pass of a Hugging Face model as sums over who wrote what: `tracer.model.residual_stream` of it.

What is said is checked on the very pass: the parts must sum to the stream of every layer, and the scores rebuilt from
weights and stream must give the model's own patterns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.huggingface.attention_weights import attention_weights, embedding, halved, unembedding
from tracer.huggingface.stream_taps import OUT_IN
from tracer.interventions.edits import active, recording
from tracer.model.residual_stream import AttentionPass, ResidualStream

CLOSE, STEPS = 1e-3, 3
"""Largest difference, relative to the largest number, that rounding may make; of coarse numbers in their own steps,
which is 2.3 % of bfloat16. What is said of such a model is as rough as what it computes."""


FIRST = "more enters the first block than embed gives: positions (has_positions), a norm (embed_norm), a factor"
BETWEEN = (
    "a block adds more than its attention and its mlp write, or less: another module, a factor, or a norm behind "
    "them (out_norm, mlp_norm)"
)
WRITE = "out makes something else of what heads give: a gate (gated), a norm behind it (out_norm), another order"
LOGITS = "final and unembed are not all that makes them: another norm, a factor or a cap"
PATTERN = "norm, into, own_norms, rotary and scale do not say how scores are made"
"""What may be missing where a sum is not whole."""


@torch.no_grad()
def residual_stream(model: Any, tokens: Int[Tensor, "batch pos"]) -> ResidualStream:
    """Of a `WrappedModel`. ValueError, with the layer, where the parts do not add up."""
    inner, n, known = model.model, model.n_layers, model.layout
    wanted = ["hook_resid_pre", "hook_mlp_out", "hook_attn_out", "hook_z", "hook_rot_cos", "hook_rot_sin", "hook_alibi"]
    wanted += [OUT_IN.rpartition(".")[2]] * known.gated + ["hook_q"] * (known.rotary != "given")
    last = f"blocks.{n - 1}.hook_resid_post"
    with recording(*wanted, last) as seen:
        logits = model(tokens)
    close = _close(seen[last].dtype)
    seen = {name: x.to(torch.promote_types(x.dtype, torch.float32)) for name, x in seen.items()}
    layers = []
    for i, layer in enumerate(model.layers):
        at = f"blocks.{i}.attn."
        turns = (seen[f"{at}hook_rot_cos"], seen[f"{at}hook_rot_sin"]) if f"{at}hook_rot_cos" in seen else None
        alibi = seen.get(f"{at}hook_alibi")
        one = AttentionPass(
            attention_weights(inner, known, layer), seen[f"blocks.{i}.hook_resid_pre"], seen[f"{at}hook_z"], turns,
            score_bias=None if alibi is None else alibi.view(len(tokens), layer.n_heads, 1, -1),
            gate=_gate(seen[f"blocks.{i}.{OUT_IN}"], seen[f"{at}hook_z"]) if known.gated else None,
        )  # fmt: skip
        if known.rotary != "given":
            if (q := seen.get(f"{at}hook_q")) is None:
                raise ValueError(
                    f"{layer.name} makes its pattern by hand: rotary={known.rotary!r} needs queries to see"
                )
            one = replace(one, turns=_turns(one, halved(q) if known.rotary == "pairs" else q))
        layers.append(one)
    embed, final = embedding(inner, known, tokens), seen[last]
    pos = layers[0].resid_pre - embed if known.has_positions else None
    mlp_out = tuple(seen.get(f"blocks.{i}.hook_mlp_out") for i in range(n))
    found = ResidualStream(tokens, embed, pos, tuple(layers), mlp_out, final, unembedding(inner, known), logits)
    here = active()
    if here is None or not here.edits:  # edits break sums, which is not held against the model
        _check(model, found, seen, close)
    return found


def _gate(entered: Tensor, z: Tensor) -> Float[Tensor, "batch pos head d_value"]:
    """What z was multiplied by before it entered the layer that writes; 1 where z is 0, of which nobody can know."""
    return torch.where(z == 0, 1.0, entered.view(z.shape) / torch.where(z == 0, 1.0, z))


def _turns(one: AttentionPass, q: Float[Tensor, "batch pos head d_head"]) -> tuple[Tensor, Tensor]:
    """Cosine and sine of rotary positions, [1 pos d_head] each: those that turn q as it is made into q as it was seen.

    By least squares over sequences and heads, of each pair; that they turn k alike, the patterns say (`check_scores`).
    """
    made = torch.stack([one.whole("q", head) for head in range(q.shape[2])], 2)
    (a, b), (c, d) = (x.to(q).chunk(2, -1) for x in (made, q))
    size = (a * a + b * b).sum((0, 2)).clamp(min=torch.finfo(q.dtype).tiny)
    cos, sin = (x.sum((0, 2)) / size for x in (a * c + b * d, a * d - b * c))
    return torch.cat([cos, cos], -1)[None], torch.cat([sin, sin], -1)[None]


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
        said = f"; or its pattern, which {code} says, is no softmax of scores" if (code := model.layers[i].code) else ""
        for head in range(pattern.shape[1]):
            rebuilt = layer.seen_scores(layer.scores(head), head)
            hidden = pattern[:, head] == 0
            _same(model, f"the pattern of L{i}H{head}", rebuilt.masked_fill(hidden, -torch.inf).softmax(-1),
                  pattern[:, head], close, PATTERN + said)  # fmt: skip


def _check(model: Any, found: ResidualStream, seen: dict[str, Tensor], close: float) -> None:
    """What was read must add up to what was seen; edits in force break sums, and are not held against the model."""
    x = found.embed if found.pos_embed is None else found.embed + found.pos_embed
    for i, (layer, mlp) in enumerate(zip(found.layers, found.mlp_out, strict=True)):
        _same(model, f"what enters layer {i}", x, layer.resid_pre, close, BETWEEN if i else FIRST)
        wrote = seen[f"blocks.{i}.hook_attn_out"]
        _same(model, f"what the heads of layer {i} write", layer.attn_out, wrote, close, WRITE)
        x = layer.resid_pre + layer.attn_out + (0 if mlp is None else mlp)
    _same(model, "what leaves the last layer", x, found.final, close, BETWEEN)
    _same(model, "its logits", found.end(found.final), found.logits, close, LOGITS)


def _close(dtype: torch.dtype) -> float:
    return max(CLOSE, STEPS * torch.finfo(dtype).eps)


def _same(model: Any, what: str, found: Tensor, seen: Tensor, close: float, missing: str) -> None:
    wrong = float((found - seen).abs().max()) / max(float(seen.abs().max()), 1e-9)
    if not wrong <= close:
        raise ValueError(
            f"the parts of this {type(model.model).__name__} do not add up: {what} is off by {wrong:.1%} of its "
            f"largest number, so nothing is said of its stream"
            + (f". Of its layout: {missing}" if model.own_layout is not None else "")
        )
