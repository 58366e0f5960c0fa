"""A model of one layer whose attention is written by hand, in the words that a test chooses."""

from collections.abc import Callable

import torch
from einops import rearrange
from torch import Tensor, nn

BATCH, T = 3, 7


class ByHand(nn.Module):
    """One layer, x [batch pos d] -> z merged; `how` computes z [batch pos head d_head] from q, k, v of that order."""

    def __init__(self, how: Callable[..., Tensor], heads: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out, self.how, self.heads = nn.Linear(16, 48), nn.Linear(16, 16), how, heads

    def parts(self, x: Tensor) -> list[Tensor]:
        return [rearrange(t, "b t (h d) -> b t h d", h=self.heads) for t in self.qkv(3 * x).chunk(3, -1)]

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.how(*self.parts(x)).flatten(2))


def einsum_bhqk(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhqk,bkhd->bqhd", (torch.einsum("bqhd,bkhd->bhqk", q, k) / 2).softmax(-1), v)
