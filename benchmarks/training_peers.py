"""The loops that people write instead: the tutorials' module a head, and nanoGPT's one matrix for q, k and v."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tracer.config import ModelConfig
from tracer.model import Transformer

Norm = Callable[[int, float], nn.Module]


class RMSNorm(nn.Module):
    """As the tutorials write it."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.gamma, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.gamma


class Head(nn.Module):
    """One head with weights, a mask and an entropy of its own."""

    mask: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        shape = (config.d_model, config.head_width)
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.empty(shape)) for _ in range(3))
        self.register_buffer("mask", torch.tril(torch.ones(config.n_ctx, config.n_ctx)))
        self.entropy = 0.0

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        q, k, v = x @ self.W_Q, x @ self.W_K, x @ self.W_V
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        weights = F.softmax(scores.masked_fill(self.mask[:n, :n] == 0, float("-inf")), dim=-1)
        self.entropy = -(weights * torch.log(weights + 1e-9)).sum(-1).mean().item()
        return weights @ v


class Heads(nn.Module):
    """Heads in a ModuleList, side by side, then W_O."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(config) for _ in range(config.n_heads))
        self.W_O = nn.Parameter(torch.empty(config.n_heads * config.head_width, config.d_model))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1) @ self.W_O

    @torch.no_grad()
    def copy(self, weights: dict[str, Tensor]) -> None:
        for i, head in enumerate(self.heads):
            for name in ("W_Q", "W_K", "W_V"):
                getattr(head, name).copy_(weights[name][i])
        self.W_O.copy_(weights["W_O"].flatten(0, 1))


class Fused(nn.Module):
    """nanoGPT's CausalSelfAttention without biases."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.c_attn = nn.Linear(config.d_model, 3 * config.d_model, bias=False)
        self.c_proj = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, n, width = x.shape
        shape = (batch, n, self.n_heads, width // self.n_heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(out.transpose(1, 2).contiguous().view(batch, n, width))

    @torch.no_grad()
    def copy(self, weights: dict[str, Tensor]) -> None:
        columns = [weights[name].transpose(0, 1).flatten(1) for name in ("W_Q", "W_K", "W_V")]
        self.c_attn.weight.copy_(torch.cat(columns, 1).T)
        self.c_proj.weight.copy_(weights["W_O"].flatten(0, 1).T)


def fused_norm(d_model: int, eps: float) -> nn.Module:
    return nn.RMSNorm(d_model, eps=eps)


class Peer(nn.Module):
    """x + Attn(norm(x)), x + MLP(norm(x)), four times."""

    def __init__(self, config: ModelConfig, attention: type[Heads] | type[Fused], norm: Norm) -> None:
        super().__init__()
        assert config.d_vocab
        self.tokens = nn.Embedding(config.d_vocab, config.d_model)
        self.places = nn.Embedding(config.n_ctx, config.d_model)
        widths = (config.d_model, *config.mlp_hidden, config.d_model)
        self.blocks = nn.ModuleList()
        for _ in range(config.n_layers):
            layers = [m for pair in zip(widths[:-1], widths[1:], strict=True) for m in (nn.Linear(*pair), nn.ReLU())][
                :-1
            ]
            norms = (norm(config.d_model, config.norm_eps) for _ in range(2))
            self.blocks.append(nn.ModuleList([next(norms), attention(config), next(norms), nn.Sequential(*layers)]))
        self.out = nn.Linear(config.d_model, config.d_vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for before, attention, after, mlp in self.blocks:  # pyrefly: ignore[not-iterable]
            x = x + attention(before(x))
            x = x + mlp(after(x))
        return self.out(x)

    @torch.no_grad()
    def copy(self, model: Transformer) -> None:
        """The same weights in another layout."""
        self.tokens.weight.copy_(model.embed.W_E)
        self.places.weight.copy_(model.pos_embed.W_pos)
        self.out.weight.copy_(model.W_U.T)
        for theirs, ours in zip(self.blocks, model.blocks, strict=True):
            _, attention, _, mlp = theirs  # pyrefly: ignore[not-iterable]
            attention.copy(dict(ours.attn.named_parameters()))
            assert ours.mlp is not None
            for linear, name in zip(mlp[::2], ours.mlp.names, strict=True):
                linear.weight.copy_(getattr(ours.mlp, f"W_{name}").T)
                linear.bias.copy_(getattr(ours.mlp, f"b_{name}"))
