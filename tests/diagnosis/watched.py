"""Small models that are not ours, trained by a loop of their own under `tracer.watch`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from tracer.data.markov import chains
from tracer.store import Run

WIDTH, HEADS, STATES, ROW, STEPS = 16, 2, 4, 16, 48


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = (f(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(z.transpose(1, 2).flatten(2))


class Small(nn.Module):
    """Two blocks of causal attention over learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.pos = nn.Embedding(STATES, WIDTH), nn.Embedding(ROW, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.unembed = nn.Linear(WIDTH, STATES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.pos(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.unembed(x)


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(
        vocab_size=STATES, n_positions=ROW, n_embd=WIDTH, n_layer=2, n_head=HEADS, bos_token_id=0, eos_token_id=0,
    ))  # fmt: skip


def zero_qk(block: Any) -> None:
    nn.init.zeros_(block.q.weight)
    nn.init.zeros_(block.k.weight)


def clone(block: Any) -> None:
    half = WIDTH // HEADS
    for layer in (block.q, block.k, block.v):
        layer.weight[half:] = layer.weight[:half]
    block.out.weight[:, half:] = block.out.weight[:, :half]


def loud(block: Any) -> None:
    block.q.weight.mul_(100)
    block.k.weight.mul_(100)


@dataclass(frozen=True)
class Case:
    """What is done to the blocks, and how they are trained."""

    hurt: Callable[[Any], None] | None = None
    without: tuple[str, ...] = ()
    """Ends of the names of what the optimiser is not given."""
    lr: float = 1e-2
    optimizer: Any = torch.optim.AdamW
    model: str = "small"
    nan_at: int | None = None


def train(case: Case, folder: Path, seed: int) -> Run:
    """The run that `tracer.watch` records."""
    torch.manual_seed(seed)
    model: Any = gpt2() if case.model == "gpt2" else Small()
    if case.hurt is not None:
        with torch.no_grad():
            for block in model.blocks:
                case.hurt(block)
    given = [p for name, p in model.named_parameters() if not name.endswith(case.without or ("none",))]
    optimizer, rng = case.optimizer(given, lr=case.lr), np.random.default_rng(seed)
    with warnings.catch_warnings(), tracer.watch(model, run=folder, every=4) as recorder:
        warnings.simplefilter("ignore", RuntimeWarning)  # a run that diverges is said in a warning
        for step in range(STEPS):
            tokens = torch.from_numpy(chains(rng, 32, ROW, STATES)[1])
            output = model(tokens)
            logits = output.logits if hasattr(output, "logits") else output
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == case.nan_at:
                with torch.no_grad():
                    next(model.parameters())[0] = torch.nan
            recorder.step(loss)
    return Run(folder)
