"""Small decoders that loops of their own train on Markov chains under `tracer.watch`, well and in every wrong way."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from tracer.store import Run

VOCABULARY, ROW, ROWS, WIDTH, HEADS = 16, 16, 16, 32, 2
AFTER = np.random.default_rng(0).dirichlet(np.full(VOCABULARY, 0.15), size=VOCABULARY)
"""What follows each token: 1.5 nats, where frequencies alone are 2.6 and ln 16 is 2.77."""


def chain(rng: np.random.Generator, n: int = ROWS) -> Tensor:
    ids = np.zeros((n, ROW), int)
    ids[:, 0] = rng.integers(0, VOCABULARY, n)
    for i in range(1, ROW):
        ids[:, i] = np.minimum((AFTER[ids[:, i - 1]].cumsum(1) < rng.random(n)[:, None]).sum(1), VOCABULARY - 1)
    return torch.from_numpy(ids)


class Block(nn.Module):
    def __init__(self, sees: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.sees = sees

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        mask = torch.ones(n, n, dtype=torch.bool).tril(self.sees)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(z.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class OverTheBatch(Block):
    """Rows and positions have changed places where it attends, as with batch_first=False."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(0, 1)).transpose(0, 1)


class Decoder(nn.Module):
    """`sees`: places after its own that a token is shown; `placed`: does it know where it is?"""

    def __init__(self, sees: int = 0, placed: bool = True, block: Callable[[int], Block] = Block) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(2 * ROW, WIDTH)
        self.blocks = nn.ModuleList([block(sees), block(sees)])
        self.norm, self.unembed = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.placed = placed
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.05)

    def forward(self, ids: Tensor) -> Tensor:
        at = torch.arange(ids.shape[1])
        x = self.embed(ids) + self.place(at if self.placed else torch.zeros_like(at))
        for block in self.blocks:
            x = block(x)
        return self.unembed(self.norm(x))


Pair = tuple[Tensor, Tensor]


def following(logits: Tensor, ids: Tensor) -> Pair:
    return logits[:, :-1], ids[:, 1:]


def unshifted(logits: Tensor, ids: Tensor) -> Pair:
    return logits, ids


def twice_shifted(logits: Tensor, ids: Tensor) -> Pair:
    return logits[:, :-2], ids[:, 2:]


def shuffled(logits: Tensor, ids: Tensor) -> Pair:
    targets = ids[:, 1:]
    return logits[:, :-1], targets.flatten()[torch.randperm(targets.numel())].view_as(targets)


def twice_normalised(logits: Tensor, ids: Tensor) -> Pair:
    return logits[:, :-1].softmax(-1), ids[:, 1:]


class Probabilities(Decoder):
    """Its last step is a softmax, which the loss takes as well."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids).softmax(-1)


def of_the_first_rows(logits: Tensor, ids: Tensor) -> Pair:
    return logits[:2, :-1], ids[:2, 1:]


def padded(rng: np.random.Generator, step: int) -> Tensor:
    """Rows of which two thirds or more are padding, token 0."""
    ids, ends = chain(rng).clamp(min=1), rng.integers(3, ROW // 3 + 1, ROWS)
    return torch.where(torch.arange(ROW) < torch.from_numpy(ends)[:, None], ids, 0)


def but_padding(logits: Tensor, ids: Tensor) -> Pair:
    return logits[:, :-1], torch.where(ids[:, 1:] == 0, -100, ids[:, 1:])


@dataclass(frozen=True)
class Lesson:
    """One loop. The defaults are those of a healthy one."""

    model: Callable[[], nn.Module] = Decoder
    prepare: Callable[[Any], object] = lambda model: None
    batch: Callable[[np.random.Generator, int], Tensor] = lambda rng, step: chain(rng)
    targets: Callable[[Tensor, Tensor], Pair] = following
    cut: bool = False
    """Is the model given all but the last token of a row, as with (x, y) pairs?"""
    factor: float = 1.0
    """Of the loss."""
    optimizer: Any = torch.optim.AdamW
    lr: float = 3e-3
    steps: int = 80
    every: int = 4
    stepping: bool = True
    """Is the optimiser's step reached?"""
    held_out: bool = False
    before: int = 0
    """Updates before the run is watched, at a rate of 3e-3."""
    options: dict[str, Any] = field(default_factory=dict)

    def train(self, folder: Path) -> Run:
        torch.manual_seed(0)
        rng, model = np.random.default_rng(1), self.model()
        self._go(model, torch.optim.AdamW(model.parameters(), lr=3e-3), rng, self.before, None)
        self.prepare(model)
        optimizer = self.optimizer([p for p in model.parameters() if p.requires_grad], lr=self.lr)
        held_out = chain(np.random.default_rng(99), 32) if self.held_out else None
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a recorder that switches itself off
            with tracer.watch(model, run=folder, every=self.every, held_out=held_out) as recorder:
                self._go(model, optimizer, rng, self.steps, recorder)
        return Run(folder)

    def _go(self, model: nn.Module, optimizer: Any, rng: np.random.Generator, steps: int, recorder: Any) -> None:
        for step in range(steps):
            ids = self.batch(rng, step)
            logits = model(ids[:, :-1] if self.cut else ids).float()
            chosen, targets = (logits, ids[:, 1:]) if self.cut else self.targets(logits, ids)
            loss = self.factor * F.cross_entropy(chosen.flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            if self.stepping:
                optimizer.step()
            if recorder is not None:
                recorder.step(loss.detach())


def freeze(*starts: str) -> Callable[[nn.Module], None]:
    def prepare(model: nn.Module) -> None:
        for name, p in model.named_parameters():
            if name.startswith(starts):
                p.requires_grad_(False)

    return prepare


FEW = [chain(np.random.default_rng(7 + i)) for i in range(3)]
SICK: dict[str, tuple[str, str, Lesson]] = {
    "a mask one place off": ("leak", "mask", Lesson(partial(Decoder, sees=1))),
    "no mask, and pairs (x, y)": ("leak", "mask", Lesson(partial(Decoder, sees=ROW), cut=True)),
    "attention over the batch": ("rows", "batch_first", Lesson(partial(Decoder, sees=ROWS, block=OverTheBatch))),
    "labels not shifted": ("targets", "not shifted", Lesson(targets=unshifted)),
    "labels shifted twice": ("targets", "twice", Lesson(targets=twice_shifted)),
    "targets shuffled": ("unigram", "targets", Lesson(targets=shuffled)),
    "softmax before the loss": ("targets", "softmax itself", Lesson(targets=twice_normalised)),
    "softmax in the model": ("targets", "softmax itself", Lesson(Probabilities)),
    "padding counted": ("one-token", "ignore_index", Lesson(batch=padded)),
    "two rows of sixteen": ("silent", "part of the batch", Lesson(targets=of_the_first_rows)),
    "one batch": ("repeated", "drawn once", Lesson(batch=lambda rng, step: FEW[0])),
    "three batches": ("overfit", "too little data", Lesson(
        batch=lambda rng, step: FEW[step % 3], lr=6e-3, steps=200, every=10, held_out=True)),
    "rows reversed": ("overfit", "another order", Lesson(
        batch=lambda rng, step: chain(rng).flip(1), lr=6e-3, steps=120, held_out=True)),
    "no positions": ("positions", "position ids", Lesson(partial(Decoder, placed=False))),
    "a block frozen": ("frozen", "requires_grad", Lesson(prepare=freeze("blocks.1."))),
    "a tiny rate": ("updates", "learning rate", Lesson(lr=1e-7)),
    "float16": ("rounding", "float32", Lesson(prepare=nn.Module.half, optimizer=torch.optim.SGD, lr=1e-4)),
    "minus forgotten": ("targets", "minus", Lesson(factor=-1.0, optimizer=torch.optim.SGD, lr=0.01)),
    "no step": ("rounding", "never reached", Lesson(stepping=False)),
    "a rate of 1": ("chance", "too large", Lesson(lr=1.0)),
}  # fmt: skip
"""What is wrong, the kind of finding, and what its advice says."""
WELL: dict[str, Lesson] = {
    "usual": Lesson(held_out=True),
    "pairs (x, y)": Lesson(cut=True),
    "short": Lesson(steps=24, every=1),
    "a sum for a loss": Lesson(factor=240.0),
    "SGD": Lesson(optimizer=torch.optim.SGD, lr=0.3),
    "fine-tuning at 1e-5": Lesson(before=150, lr=1e-5, held_out=True),
    "embedding frozen": Lesson(prepare=freeze("embed")),
    "bottom frozen": Lesson(prepare=freeze("embed", "place", "blocks.0.")),
    "padding left out": Lesson(batch=padded, targets=but_padding),
    "padding left out, fine-tuning": Lesson(batch=padded, targets=but_padding, before=150, lr=3e-5),
    "bfloat16": Lesson(prepare=nn.Module.bfloat16),
}
