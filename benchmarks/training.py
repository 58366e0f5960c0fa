"""What a training step costs: manyeyes with everything recorded, against the two loops that people write instead.

The model is the tutorials' four blocks with RMSNorm (preset four-blocks-rms), its batch reduced to 2048 tokens for a
CPU; `heads` is their own shape (a module for each head, explicit T x T weights, the entropy of every head fetched by
`.item()` in every forward pass), `fused` is nanoGPT's (one matrix for q, k and v, scaled_dot_product_attention), and
neither records anything else. All start from the same weights, read the same batches and take the same SGD steps, so
their losses must agree. Each lives in a process of its own, with its own allocator, and they step in turn.

FLOPs of a token, forward and backward: 6 for each weight that multiplies it, and 6 n_layers T d_model for the visible
scores and their values; hidden scores, which `heads` computes too, are not counted.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tracer import data as data_module
from tracer import training
from tracer.config import ModelConfig, TrainConfig
from tracer.model import Transformer
from tracer.presets import preset

TOKENS = 2048
"""In a batch; the preset has 131,072."""
CONTEXTS = (32, 512)
ROUNDS = 5
GLIBC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
"""What `tracer.allocator` sets: freed memory stays in the process."""


def configuration(n_ctx: int) -> TrainConfig:
    """The preset at its own cadence; a record reads as many held-out tokens at each context, 8192."""
    config = preset("four-blocks-rms").config
    record = replace(config.record, val_rows=config.record.val_rows * config.model.n_ctx // n_ctx)
    optim = replace(config.optim, batch_size=TOKENS // n_ctx)
    return replace(config, model=replace(config.model, n_ctx=n_ctx), optim=optim, record=record, device="cpu")


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


class Peer(nn.Module):
    """x + Attn(norm(x)), x + MLP(norm(x)), four times."""

    def __init__(self, config: ModelConfig, attention: type[Heads] | type[Fused], norm: type[nn.Module]) -> None:
        super().__init__()
        assert config.d_vocab
        self.tokens = nn.Embedding(config.d_vocab, config.d_model)
        self.places = nn.Embedding(config.n_ctx, config.d_model)
        widths = (config.d_model, *config.mlp_hidden, config.d_model)
        self.blocks = nn.ModuleList()
        for _ in range(config.n_layers):
            layers = [m for pair in zip(widths[:-1], widths[1:]) for m in (nn.Linear(*pair), nn.ReLU())][:-1]
            norms = (norm(config.d_model, config.norm_eps) for _ in range(2))
            self.blocks.append(nn.ModuleList([next(norms), attention(config), next(norms), nn.Sequential(*layers)]))
        self.out = nn.Linear(config.d_model, config.d_vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for before, attention, after, mlp in self.blocks:  # type: ignore[misc]
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
            _, attention, _, mlp = theirs  # type: ignore[misc]
            attention.copy(dict(ours.attn.named_parameters()))
            assert ours.mlp is not None
            for linear, name in zip(mlp[::2], ours.mlp.names, strict=True):
                linear.weight.copy_(getattr(ours.mlp, f"W_{name}").T)
                linear.bias.copy_(getattr(ours.mlp, f"b_{name}"))


def peer(n_ctx: int, attention: type[Heads] | type[Fused], norm: type[nn.Module]) -> Iterator[float]:
    """A plain loop: the loss of each step."""
    config = configuration(n_ctx)
    data = data_module.build(config.data, n_ctx, config.seed)
    filled = replace(config.model, d_vocab=data.d_vocab)
    model = Peer(filled, attention, norm)
    model.copy(Transformer(filled, config.seed))
    o = config.optim
    optimizer = torch.optim.SGD(model.parameters(), o.lr, o.momentum, weight_decay=o.weight_decay, nesterov=True)
    for step in range(config.steps):
        batch = data.train(step, o.batch_size)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def ours_bare(n_ctx: int) -> Iterator[float]:
    job = training.prepare(configuration(n_ctx))
    job.raw.train()
    for step in range(job.config.steps):
        loss = training.forward_backward(job, step)
        training.update(job, step)
        yield loss.item()
