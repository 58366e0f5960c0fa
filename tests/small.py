"""A small model whose weights are all random, and tokens for it."""

from typing import Any

import torch

from tracer.config import InitConfig, ModelConfig
from tracer.model import Transformer

SMALL = ModelConfig(
    n_layers=2, n_heads=4, d_model=16, n_ctx=10, d_vocab=13, mlp_hidden=(12, 20), attn_out_bias=True,
    init=InitConfig(attn=0.5),
)  # fmt: skip
TOKENS = torch.randint(0, 13, (3, 9), generator=torch.Generator().manual_seed(0))


def changes(base: ModelConfig = SMALL, **fields: Any) -> ModelConfig:
    return ModelConfig(**{name: getattr(base, name) for name in base.__dataclass_fields__} | fields)


def build(config: ModelConfig = SMALL, seed: int = 1) -> Transformer:
    """A float64 model in eval mode whose gains and biases are random too."""
    model = Transformer(config, seed=seed).double().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(2)
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            weight.normal_(1 if name.endswith(".w") else 0, 0.5, generator=generator)
    return model
