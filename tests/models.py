"""Models that several tests ask for, in eval mode and without gradients."""

import torch

from tracer.config import ModelConfig
from tracer.model import Transformer


def exact(config: ModelConfig) -> Transformer:
    """A model in float64, where two ways to the same number differ by rounding alone."""
    return Transformer(config, seed=1).double().eval().requires_grad_(False)


def as_trained(config: ModelConfig, dtype: torch.dtype = torch.float32) -> Transformer:
    """A model as if trained: random gains and biases, attention far from uniform, logits up to 10."""
    model = Transformer(config, seed=3).to(dtype).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(4)
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            weight.normal_(1 if name.endswith(".w") else 0, 0.5, generator=generator)
    return model
