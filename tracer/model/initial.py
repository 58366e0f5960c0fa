"""The weights that a model starts from."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from tracer.config import Init
from tracer.model.layers import FeedForward, Unembed


def init_weights(model: Any, seed: int) -> None:
    """Fill every weight of a Transformer from one CPU generator, so that a seed means the same ones everywhere."""
    generator, init = torch.Generator().manual_seed(seed), model.config.init

    def fill(weight: Tensor, how: Init, fan_in: int) -> None:
        if weight.is_meta:  # a shape without values, to fill which torch imports its compiler: a second of a process
            return
        if how == "linear":
            weight.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)
        else:
            weight.normal_(0, fan_in**-0.5 if how == "fan_in" else float(how), generator=generator)

    def fill_mlp(mlp: FeedForward) -> None:
        for name in mlp.names:
            weight, bias = getattr(mlp, f"W_{name}"), getattr(mlp, f"b_{name}")
            fill(weight, init.mlp, weight.shape[0])
            fill(bias, init.mlp, weight.shape[0]) if init.mlp == "linear" else bias.zero_()

    with torch.no_grad():
        fill(model.embed.W_E, init.embed, model.config.d_model)
        if model.config.positions in ("learned", "shortformer"):
            fill(model.pos_embed.W_pos, init.pos, model.config.d_model)
        for block in model.blocks:
            for weight in (block.attn.W_Q, block.attn.W_K, block.attn.W_V):
                fill(weight, init.attn, model.config.d_model)
            if block.attn.W_O is not None:
                fill(block.attn.W_O, init.attn, block.attn.W_O.shape[0] * block.attn.W_O.shape[1])
            if block.mlp is not None:
                fill_mlp(block.mlp)
        if model.config.unembed_hidden:
            fill_mlp(cast(FeedForward, model.unembed))
        elif not model.config.tie_embeddings:
            fill(cast(Unembed, model.unembed).W_U, init.unembed, model.config.d_model)
        for block in model.blocks:  # last, so that all other weights are those of the model without a gate
            if block.attn.W_gate is not None:
                fill(block.attn.W_gate, init.attn, model.config.d_model)
