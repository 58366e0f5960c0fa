"""Attention that nobody recognises: weights that are no softmax, or one that is written as a quotient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer

VOCABULARY, HEADS, WIDTH = 40, 4, 32
Weights = Callable[[Tensor, Tensor], Tensor]


def quotient(q: Tensor, k: Tensor) -> Tensor:
    """A causal softmax."""
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(_future(q), -1e9)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def linear(q: Tensor, k: Tensor) -> Tensor:
    """Katharopoulos et al. 2020, with elu + 1."""
    weights = (F.elu(q) + 1) @ (F.elu(k) + 1).mT
    weights = weights.masked_fill(_future(q), 0)
    return weights / weights.sum(-1, keepdim=True)


def sigmoid(q: Tensor, k: Tensor) -> Tensor:
    """Ramapuram et al. 2024: rows sum to about 1."""
    return (q @ k.mT / math.sqrt(q.shape[-1]) - math.log(q.shape[2])).sigmoid().masked_fill(_future(q), 0)


def _future(q: Tensor) -> Tensor:
    return torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)


class Quotient(nn.Module):
    """Fused attention where `weights` is None."""

    def __init__(self, weights: Weights | None = quotient) -> None:
        super().__init__()
        self.qkv, self.proj, self.weights = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), weights

    def parts(self, x: Tensor) -> list[Tensor]:
        return [t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        return self.proj(self.of(q, k, v).transpose(1, 2).flatten(2))

    def of(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.weights is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.weights(q, k) @ v


class Stack(nn.Module):
    """A language model of such layers, its weights by the seed."""

    def __init__(
        self, weights: Weights | None = quotient, layer: Any = Quotient, layers: int = 2, vocabulary: int = VOCABULARY
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList(layer(weights) for _ in range(layers))
        self.logits = nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = 2 * self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = x + block(x)
        return self.logits(x)


def told(module: Any, inputs: tuple[Any, ...], output: Any) -> tuple[Tensor, Tensor]:
    q, k, v = module.parts(inputs[0])
    return module.weights(q, k), v


def kind(function: Any = told, out: str = "proj") -> type[Quotient]:
    """A class of its own, of which this was said."""
    found = type("Mine", (Quotient,), {})
    tracer.attends(found, function, out=out)
    return found


def tokens(batch: int = 3, n: int = 12, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (batch, n), generator=torch.Generator().manual_seed(seed))
