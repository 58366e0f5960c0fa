"""The weights of each head of a Hugging Face model, where its attention is made of linear layers under known names.

1. q, k and v come out of three layers (q_proj, k_proj, v_proj) or of one: all of q, then of k, then of v (c_attn,
   qkv_proj), or those of head 0, then of head 1 (query_key_value of GPT-NeoX and BLOOM).
2. Head h owns columns h d_head to (h + 1) d_head of each, and those rows of what writes (o_proj, out_proj, c_proj).
   DeepSeek's MLA makes them through narrow vectors, which are multiplied out (`_latent`).
3. Where queries share keys and values, those are repeated, so that every head has its own.
4. A norm is read from its module, and tried on numbers: what computes something else is refused.
5. Rotary positions that turn neighbours are turned as halves: q and k are put in that order alike (`halved`).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tracer.hooks.sites import Layer
from tracer.huggingface.architectures import FUNCTIONAL, Layout
from tracer.model.protocol import HeadWeights
from tracer.model.residual_stream import AttentionWeights, Into, Latent, NormWeights, Unembedding
from tracer.named_code import kind_of


def refuse_offloaded(model: nn.Module) -> None:
    """ValueError where weights are on the meta device: a `device_map` brings them only while their module runs."""
    if away := [name for name, weight in model.named_parameters() if weight.is_meta]:
        raise ValueError(
            f"{len(away)} weights ({away[0]}, ...) are offloaded and come only while their module runs: passes, "
            f"ablations and surveys work so, but this question reads weights; load the model without offloading"
        )


@torch.no_grad()
def head_weights(model: nn.Module, known: Layout, attentions: list[Layer]) -> HeadWeights:
    """ValueError, saying what is missing, where they cannot be told apart."""
    if known.latent:
        raise ValueError(
            f"{type(model).__name__} norms a narrow vector between two weights of a head and reads positions beside "
            "it (MLA): what a head does by its weights alone depends on that norm, token by token"
        )
    layers = [attention_weights(model, known, layer) for layer in attentions]
    W_E, W_U = embedding(model, known), unembedding(model, known).W_U
    shapes = {tuple(weight.shape for weight in (one.W_Q, one.W_K, one.W_V, one.W_O)) for one in layers}
    if len(shapes) > 1 or W_E.shape[1] != layers[0].W_Q.shape[1]:
        raise ValueError(f"layers and embeddings of {type(model).__name__} differ in width")
    W_Q, W_K, W_V, W_O = (torch.stack([getattr(one, f"W_{name}") for one in layers]) for name in "QKVO")
    return HeadWeights(W_Q, W_K, W_V, W_O, W_E, W_U)


def embedding(model: Any, known: Layout, tokens: Tensor | None = None) -> Tensor:
    """[d_vocab d_model], or that of tokens: as it enters the stream, multiplied and normed as the model does."""
    config = getattr(model, "config", None)
    module = model.get_submodule(known.embed)
    rows = _precise(module.weight.detach() if tokens is None else module.weight.detach()[tokens])
    times = getattr(config, "embedding_multiplier", None) or 1.0
    if hasattr(module, "embed_scale"):  # as it was rounded
        times = float(module.embed_scale.to(module.weight.dtype))
    rows = rows if times == 1 else rows * times
    norm = norm_at(model, known.embed_norm, str(known.embed_norm))
    return rows if norm is None else norm(rows)


def unembedding(model: Any, known: Layout) -> Unembedding:
    config = getattr(model, "config", None)
    if known.unembed is not None:
        head = model.get_submodule(known.unembed)
    else:
        head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else model.lm_head
    if not isinstance(getattr(head, "weight", None), Tensor):
        raise ValueError(f"layout: unembed={known.unembed!r} is {kind_of(head)}, which has no weight")
    bias = getattr(head, "bias", None)
    return Unembedding(
        norm_at(model, known.final, str(known.final)), _precise(head.weight.detach()).T,
        None if bias is None else _precise(bias.detach()), 1 / (getattr(config, "logits_scaling", None) or 1),
        getattr(config, "final_logit_softcapping", None),
    )  # fmt: skip


@torch.no_grad()
def attention_weights(model: nn.Module, known: Layout, layer: Layer) -> AttentionWeights:
    """Of one layer, by query head."""
    block, attention = map(model.get_submodule, known.block_of(layer.name))
    cap: Any = getattr(attention, "attn_logit_softcapping", None)
    out = _linear(attention, known.out, layer.name)
    if out[0].shape[0] % layer.n_heads:
        raise ValueError(f"{layer.name} has {layer.n_heads} heads, which do not divide the {out[0].shape[0]} it writes")
    d_head = out[0].shape[0] // layer.n_heads
    latents: dict[Into, Latent] = {}
    if known.latent:
        ((W_Q, b_Q), (W_K, b_K), (W_V, b_V)), latents = _latent(attention, layer)
    else:
        (W_Q, b_Q), (W_K, b_K), (W_V, b_V) = _into(attention, known, layer, d_head)
    norm, out_norm = (norm_at(block, name, f"{layer.name}, {name}") for name in (known.norm, known.out_norm))
    q_norm, k_norm = (_own_norm(attention, name, layer, d_head) for name in known.own_norms or ("", ""))
    named = [
        float(x) for name in ("scaling", "inv_norm_factor") if isinstance(x := getattr(attention, name, None), float)
    ]
    scale = known.scale if known.scale is not None else next(iter(named), d_head**-0.5)
    if known.rotary == "pairs":
        (W_Q, b_Q, q_norm), (W_K, b_K, k_norm) = (
            (halved(W), None if b is None else halved(b), None if norm is None else _halved_norm(norm))
            for W, b, norm in ((W_Q, b_Q, q_norm), (W_K, b_K, k_norm))
        )
    return AttentionWeights(
        W_Q, W_K, W_V, rearrange(out[0], "(head d) d_model -> head d d_model", head=layer.n_heads), scale,
        b_Q, b_K, b_V, out[1], norm, q_norm, k_norm, out_norm, residual_times(model),
        cap, latents,
    )  # fmt: skip


def residual_times(model: Any) -> float:
    """What a layer's output is multiplied by before it is added (Granite)."""
    return float(getattr(getattr(model, "config", None), "residual_multiplier", None) or 1.0)


EPS = (1e-5, 1e-6, 1e-8, 1e-12, 0.0)
"""Tried of a norm that does not name its own, after the machine epsilon, which nn.RMSNorm takes then."""


def norm_of(module: nn.Module, name: str) -> NormWeights:
    """A norm of d_model, or ValueError where it computes something else."""
    named = [name for name, _ in module.named_parameters(recurse=False)]
    names = ("weight", "bias") if hasattr(module, "weight") or not named else (*named, "bias")[:2]  # gain, g, scale
    weight, bias = (None if (x := getattr(module, kind, None)) is None else _precise(x.detach()) for kind in names)
    eps = [float(x) for kind in ("eps", "variance_epsilon") if (x := getattr(module, kind, None)) is not None][:1]
    gains = [weight] if weight is None else [weight, 1 + weight]  # Gemma keeps what is added to 1
    shape: Any = getattr(module, "normalized_shape", (8,))
    width = len(weight) if weight is not None else shape[-1]
    like = next(module.parameters(), torch.empty(0))
    x = torch.linspace(-2, 3, 2 * width, device=like.device, dtype=like.dtype).reshape(2, width).sin()
    x = torch.cat([3 * x, x / 300])  # of the small ones eps is a part
    wanted, rtol = _precise(module(x)), 1e-4 if like.element_size() >= 4 else 2e-2
    known = eps or [*(torch.finfo(kind).eps for kind in (like.dtype, torch.float32)), *EPS]
    for gain, small, centre in itertools.product(gains, known, (isinstance(module, nn.LayerNorm), True)):
        found = NormWeights(small, centre, gain, bias)
        if torch.allclose(found(_precise(x)), wanted, rtol=rtol, atol=1e-5):
            return found
    raise ValueError(f"{name} is {kind_of(module)}, which computes neither LayerNorm nor RMSNorm")


def norm_at(parent: nn.Module, path: str | None, name: str) -> NormWeights | None:
    """A norm of d_model by its path, or that of a function; None where there is none."""
    if path in FUNCTIONAL:
        dtype = next(parent.parameters()).dtype
        return NormWeights(1e-5 if FUNCTIONAL[path] else torch.finfo(dtype).eps, FUNCTIONAL[path])
    where, _, last = (path or "").rpartition(".")
    module = getattr(parent.get_submodule(where), last, None) if last else None
    return None if module is None else norm_of(module, name)


def halved(x: Float[Tensor, "*any d_head"]) -> Float[Tensor, "*any d_head"]:
    """Numbers 0, 2, 4, ..., then 1, 3, 5, ...: pairs of neighbours become (i, i + d_head / 2)."""
    return torch.cat([x[..., 0::2], x[..., 1::2]], -1)


def _halved_norm(norm: NormWeights) -> NormWeights:
    gain, bias = (None if x is None else halved(x) for x in (norm.gain, norm.bias))
    return replace(norm, gain=gain, bias=bias)


def _own_norm(attention: nn.Module, name: str, layer: Layer, d_head: int) -> NormWeights | None:
    """Of q or k: of each head by itself with one gain or one each, or of all together."""
    if name in FUNCTIONAL:
        return norm_at(attention, name, name)
    module: Any = attention
    for part in name.split("."):
        module = getattr(module, part, None)
    if module is None:
        return None
    norms = getattr(module, "norms", None)
    if norms is not None:  # StableLM: a LayerNorm for each head
        each = [norm_of(one, layer.name) for one in norms]
        groups = layer.n_heads // len(each)
        gain, bias = (None if getattr(each[0], kind) is None else
                      torch.stack([getattr(one, kind) for one in each]).repeat_interleave(groups, 0)
                      for kind in ("gain", "bias"))  # fmt: skip
        return NormWeights(each[0].eps, each[0].centre, gain, bias)
    found = norm_of(module, f"{layer.name}, of q or k")
    if found.gain is None or len(found.gain) == d_head:
        return found
    gain = rearrange(found.gain, "(head d) -> head d", d=d_head)  # OLMo 2: over all heads
    return NormWeights(found.eps, found.centre, gain.repeat_interleave(layer.n_heads // len(gain), 0), None, (-2, -1))


def _into(attention: nn.Module, known: Layout, layer: Layer, d_head: int) -> list[tuple[Tensor, Tensor | None]]:
    """W and b of q, k and v, [head d_model d_head] and [head d_head]."""
    if len(known.into) == 3:
        found = [_linear(attention, name, layer.name) for name in known.into]
        parts = [[None if x is None else x.unflatten(-1, (-1, d_head)) for x in one] for one in found]
    else:
        W, b = _linear(attention, known.into[0], layer.name)
        parts = list(zip(_apart(W, known, layer, d_head), _apart(b, known, layer, d_head), strict=True))
    return [(_heads(W, layer), None if b is None else _heads(b, layer)) for W, b in parts]


def _latent(attention: Any, layer: Layer) -> tuple[list[tuple[Tensor, Tensor | None]], dict[Into, Latent]]:
    """`_into` of MLA (DeepSeek-V2, 2024): keys and values through one narrow vector, queries through another or none.

    A head's turned numbers, which stand last and often in pairs (0, 1), (2, 3), come first here and as two halves: q
    and k change alike, so that their product stays.
    """
    nope, turned, rank = attention.qk_nope_head_dim, attention.qk_rope_head_dim, attention.kv_lora_rank
    halves = torch.arange(turned)
    if getattr(attention.config, "rope_interleave", True):
        halves = torch.cat([halves[0::2], halves[1::2]])
    order = torch.cat([nope + halves, torch.arange(nope)])

    def up(name: str, norm: NormWeights | None) -> Tensor:
        W = _linear(attention, name, layer.name)[0]
        W = W if norm is None or norm.gain is None else norm.gain[:, None] * W
        return rearrange(W, "rank (head d) -> head rank d", head=layer.n_heads)

    W, b = _linear(attention, "kv_a_proj_with_mqa", layer.name)
    norm = norm_of(attention.kv_a_layernorm, f"{layer.name}, kv_a_layernorm")
    keys, values = up("kv_b_proj", norm).split([nope, attention.v_head_dim], -1)
    kv = Latent(W[:, :rank], norm, None if b is None else b[:rank])
    latents: dict[Into, Latent] = {"k": replace(kv, beside=turned), "v": kv}
    W_K = torch.cat([W[:, rank:][:, halves].expand(layer.n_heads, -1, -1), kv.W @ keys], -1)
    b_K = b_V = b_Q = None
    if b is not None:
        b_K = torch.cat([b[rank:][halves].expand(layer.n_heads, -1), b[:rank] @ keys], -1)
        b_V = b[:rank] @ values
    if attention.q_lora_rank is None:
        W_Q = up("q_proj", None)
    else:
        W, b = _linear(attention, "q_a_proj", layer.name)
        norm = norm_of(attention.q_a_layernorm, f"{layer.name}, q_a_layernorm")
        wide, latents["q"] = up("q_b_proj", norm), Latent(W, norm, b)
        W_Q, b_Q = W @ wide, None if b is None else (b @ wide)[..., order]
    return [(W_Q[..., order], b_Q), (W_K, b_K), (kv.W @ values, b_V)], latents


def _apart(x: Tensor | None, known: Layout, layer: Layer, d_head: int) -> list[Any]:
    """q, k and v of one layer for all three, [... head d_head]."""
    if x is None:
        return [None] * 3
    if known.woven:
        return list(x.unflatten(-1, (-1, 3, d_head)).unbind(-2))
    heads = x.unflatten(-1, (-1, d_head))
    shared = (heads.shape[-2] - layer.n_heads) // 2
    return list(heads.split([layer.n_heads, shared, shared], -2))


def _heads(x: Any, layer: Layer) -> Tensor:
    """[head ... d_head]: a view, unless heads share."""
    found = x.movedim(-2, 0)
    return found.repeat_interleave(layer.n_heads // len(found), 0) if len(found) < layer.n_heads else found


def _linear(attention: nn.Module, name: str, where: str) -> tuple[Tensor, Tensor | None]:
    """[in out] and [out] of a linear layer, whichever way round it keeps them."""
    module = next((one for path, one in attention.named_modules() if path == name), None)
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    plain = isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    if not plain or not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        holds = ", ".join(dict(attention.named_children()))
        raise ValueError(f"{where} holds {holds}: none of the ways in which heads are told apart")
    found = _precise(weight.detach())
    return found.T if isinstance(module, nn.Linear) else found, None if bias is None else _precise(bias.detach())


def _precise(x: Tensor) -> Tensor:
    """In float32 or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
