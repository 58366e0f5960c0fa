"""Where a token stands, as fixed waves: added to the stream, or as a turn of q and k."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def sinusoid(n_ctx: int, d_model: int) -> Float[Tensor, "n_ctx d_model"]:
    """Vaswani et al. 2017: sines and cosines of position at geometrically spaced wavelengths."""
    angle = _angles(n_ctx, math.ceil(d_model / 2))
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :d_model]


def rotation(n_ctx: int, d_head: int) -> Float[Tensor, "n_ctx half 2"]:
    """Cosine and sine of position * frequency, for `rotate`."""
    angle = _angles(n_ctx, d_head // 2)
    return torch.stack([angle.cos(), angle.sin()], -1)


def _angles(n_ctx: int, half: int) -> Float[Tensor, "n_ctx half"]:
    frequency = 10000.0 ** -(torch.arange(half) / half)
    return torch.arange(n_ctx)[:, None] * frequency


def rotate(x: Float[Tensor, "batch pos head d_head"], turns: Tensor) -> Float[Tensor, "batch pos head d_head"]:
    """Rotary positions (Su et al. 2021): turn each pair (first half, second half) of q or k by position * frequency."""
    cos, sin = (turns[: x.shape[1], None, :, i].to(x.dtype) for i in (0, 1))
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
