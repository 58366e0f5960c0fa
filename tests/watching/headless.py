"""Models in which no attention is seen, as others write them, and the loop that trains them."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer

WIDTH, TOKENS, ROW = 16, 20, 16


class StateSpaceBlock(nn.Module):
    """A diagonal state that decays, written to and read from the residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.write, self.read = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.decay = nn.Parameter(torch.linspace(-2, 2, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        into, keep = self.write(self.norm(x)), self.decay.sigmoid()
        states = [into[:, 0]]
        for at in range(1, into.shape[1]):
            states.append(keep * states[-1] + (1 - keep) * into[:, at])
        return x + self.read(torch.stack(states, 1).tanh())


class MixerBlock(nn.Module):
    """Positions mixed by a matrix that also sees the later ones."""

    def __init__(self) -> None:
        super().__init__()
        self.across, self.within = nn.Linear(ROW, ROW), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(x.mT).mT
        return x + self.within(x).relu()


class Language(nn.Module):
    """Two blocks between an embedding and logits; dropout, so that recording may not draw random numbers."""

    def __init__(self, block: Callable[[], nn.Module] = StateSpaceBlock) -> None:
        super().__init__()
        self.embed, self.drop = nn.Embedding(TOKENS, WIDTH), nn.Dropout(0.1)
        self.blocks = nn.ModuleList([block(), block()])
        self.unembed = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.drop(self.embed(tokens))
        for block in self.blocks:
            x = block(x)
        return self.unembed(x)


class Pictures(nn.Module):
    """A convolutional classifier of three kinds of pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.Conv2d(4, 8, 3, 2), nn.BatchNorm2d(8))
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x).relu().mean((2, 3)))


def language(seed: int = 0, block: Callable[[], nn.Module] = StateSpaceBlock) -> Language:
    torch.manual_seed(seed)
    return Language(block)


def rows(n: int, size: int = 8) -> Iterator[Tensor]:
    """Batches of token ids, the same every time."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(n):
        yield torch.randint(TOKENS, (size, ROW), generator=generator)


def next_token_loss(model: Any, tokens: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def train(
    model: Any, batches: Iterator[Tensor], run: str | Path | None = None, *, called: Any = None,
    before: Callable[[int], None] | None = None, **options: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """A loop as somebody writes it, and what it saw of each update by itself, in float64; with `run`, recorded.
    `before` is told each step before its pass."""
    called = model if called is None else called
    recorder = None if run is None else tracer.watch(called, run=run, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(1)
    seen = []
    for step, tokens in enumerate(batches):
        if before is not None:
            before(step)
        weights = [p.detach().double().clone() for p in model.parameters()]
        loss = next_token_loss(called, tokens)
        optimizer.zero_grad()
        loss.backward()
        grads = [p.grad.double() for p in model.parameters()]
        optimizer.step()
        moved = [p.detach().double() - old for p, old in zip(model.parameters(), weights, strict=True)]
        seen.append({
            "train_loss": loss.item(), "grad_norm": [float(g.norm()) for g in grads],
            "weight_norm": [float(w.norm()) for w in weights],
            "update_ratio": [
                float(m.norm() / w.norm()) if w.any() else math.nan for m, w in zip(moved, weights, strict=True)
            ],
        })  # fmt: skip
        if recorder is not None:
            recorder.step(loss)
    if recorder is not None:
        recorder.close()
    return seen
