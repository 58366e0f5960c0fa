"""A GPT of somebody's own: RMSNorm and norms of q and k under other names, rotary positions and a gate where asked."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYOUT: dict[str, Any] = {
    "blocks": "tower", "final": "last", "embed": "words", "attention": "look", "norm": "before", "out": "write",
    "into": ("query", "key", "value"), "own_norms": ("of_query", "of_key"), "mlp": "think", "unembed": "say",
    "has_positions": True,
}  # fmt: skip
"""The fields of its `tracer.Layout`."""


class Norm(nn.Module):
    """RMSNorm whose gain is called otherwise, and which does not say its eps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain


class Look(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, rotary: str, gated: bool) -> None:
        super().__init__()
        self.sizes, self.rotary, d_head = (heads, kv_heads, kv_heads), rotary, width // heads
        self.query, self.write = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, kv_heads * d_head) for _ in range(2))
        self.of_query, self.of_key = Norm(d_head), nn.RMSNorm(d_head)
        self.gate = nn.Linear(width, width) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        maps = zip((self.query, self.key, self.value), self.sizes, strict=True)
        q, k, v = (one(x).unflatten(-1, (heads, -1)).transpose(1, 2) for one, heads in maps)
        q, k = self.turned(self.of_query(q)), self.turned(self.of_key(k))
        shared = self.sizes[0] != self.sizes[1]
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared).transpose(1, 2).flatten(2)
        return self.write(z if self.gate is None else z * self.gate(x).sigmoid())

    def turned(self, x: Tensor) -> Tensor:
        if not self.rotary:
            return x
        pos, width = x.shape[-2:]
        angle = torch.outer(torch.arange(pos).to(x), 100 ** -(torch.arange(0, width, 2).to(x) / width))
        a, b = x.chunk(2, -1) if self.rotary == "halves" else (x[..., 0::2], x[..., 1::2])
        c, d = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        return torch.cat([c, d], -1) if self.rotary == "halves" else torch.stack([c, d], -1).flatten(-2)


class Floor(nn.Module):
    def __init__(self, width: int, *of_look: Any) -> None:
        super().__init__()
        self.before, self.look, self.between = Norm(width), Look(width, *of_look), Norm(width)
        self.think = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.look(self.before(x))
        return x + self.think(self.between(x))


class Mine(nn.Module):
    """As trained: gains and attention are far from those of a new model."""

    def __init__(self, rotary: str = "", gated: bool = False, kv_heads: int = 4) -> None:
        super().__init__()
        self.words, self.last, self.say = nn.Embedding(24, 32), Norm(32), nn.Linear(32, 24, bias=False)
        self.places = None if rotary else nn.Embedding(32, 32)
        self.tower = nn.ModuleList(Floor(32, 4, kv_heads, rotary, gated) for _ in range(2))
        generator = torch.Generator().manual_seed(0)
        for weight in self.parameters():
            nn.init.normal_(weight, float(weight.ndim == 1), 0.3, generator)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1], device=ids.device))
        for floor in self.tower:
            x = floor(x)
        return self.say(self.last(x))
