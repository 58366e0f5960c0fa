"""The weights of each head of a Hugging Face model, where its attention is made of linear layers under known names.

1. q, k and v come out of three layers (q_proj, k_proj, v_proj) or of one (c_attn: all of q, then k, then v).
2. Head h owns columns h d_head to (h + 1) d_head of each, and those rows of what writes (o_proj, out_proj, c_proj).
3. Where queries share keys and values, those are repeated, so that every head has its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from tracer.model.protocol import HeadWeights
from tracer.watching.sites import Layer

OUT = ("o_proj", "out_proj", "c_proj")


@torch.no_grad()
def head_weights(model: nn.Module, attentions: Iterable[Layer]) -> HeadWeights:
    """ValueError, saying what is missing, where they cannot be told apart."""
    layers = [_layer(model.get_submodule(layer.name), layer.name, layer.n_heads) for layer in attentions]
    W_E, W_U = _table(model, "input"), _table(model, "output").T
    shapes = {tuple(weight.shape for weight in layer) for layer in layers}
    if len(shapes) > 1 or W_E.shape[1] != layers[0][0].shape[1] or len(W_U) != W_E.shape[1]:
        raise ValueError(f"layers and embeddings of {type(model).__name__} differ in width")
    W_Q, W_K, W_V, W_O = (torch.stack(kind) for kind in zip(*layers, strict=True))
    return HeadWeights(W_Q, W_K, W_V, W_O, W_E, W_U)


def _table(model: Any, side: str) -> Tensor:
    """[d_vocab d_model]"""
    found = getattr(model, f"get_{side}_embeddings", lambda: None)()
    weight = getattr(found, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        raise ValueError(f"{type(model).__name__} does not name its {side} embeddings")
    return weight.float()


def _layer(attention: nn.Module, name: str, n_heads: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    parts = dict(attention.named_children())
    out = next((_matrix(parts[one]) for one in OUT if one in parts), None)
    if {"q_proj", "k_proj", "v_proj"} <= set(parts):
        into = [_matrix(parts[f"{kind}_proj"]) for kind in "qkv"]
    elif "c_attn" in parts and (joined := _matrix(parts["c_attn"])) is not None and joined.shape[1] % 3 == 0:
        into = list(joined.chunk(3, dim=1))
    else:
        into = []
    if out is None or len(into) < 3 or any(x is None for x in into) or out.shape[0] % n_heads:
        raise ValueError(f"{name} holds {', '.join(parts)}: none of the ways in which heads are told apart")
    d_head = out.shape[0] // n_heads
    heads = [rearrange(x, "d_model (head d_head) -> head d_model d_head", d_head=d_head) for x in into if x is not None]
    W_Q, W_K, W_V = (x.repeat_interleave(n_heads // len(x), 0) for x in heads)
    return W_Q, W_K, W_V, rearrange(out, "(head d_head) d_model -> head d_head d_model", head=n_heads)


def _matrix(module: nn.Module) -> Tensor | None:
    """[in out], whichever way round the layer keeps it; None for what is no plain linear layer."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    if isinstance(module, nn.Linear):
        return weight.float().T
    return weight.float() if type(module).__name__ == "Conv1D" else None
