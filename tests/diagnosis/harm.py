"""What is done to a run before its first step, so that it is sick: to its weights, its data, its optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tracer.training import loop

Hurt = Callable[[loop.Job], None]


def blocks(job: loop.Job, layers: tuple[int, ...] | None) -> list[Any]:
    return [block.attn for i, block in enumerate(job.raw.blocks) if layers is None or i in layers]


def zero(*names: str, layers: tuple[int, ...] | None = None, heads: Any = slice(None)) -> Hurt:
    """Weights of attention that begin at 0."""

    def hurt(job: loop.Job) -> None:
        with torch.no_grad():
            for attn in blocks(job, layers):
                for name in names:
                    getattr(attn, name)[heads] = 0

    return hurt


def copy(*heads: int) -> Hurt:
    """Heads that begin as copies of head 0, in every layer."""

    def hurt(job: loop.Job) -> None:
        with torch.no_grad():
            for attn in blocks(job, None):
                for name in ("W_Q", "W_K", "W_V", "W_O"):
                    weight = getattr(attn, name)
                    weight[list(heads)] = weight[0].clone()

    return hurt


def freeze(*ends: str) -> Hurt:
    """Parameters whose names end so do not ask for a gradient."""

    def hurt(job: loop.Job) -> None:
        for name, p in job.raw.named_parameters():
            if name.endswith(ends):
                p.requires_grad_(False)

    return hurt


def withhold(*ends: str) -> Hurt:
    """Parameters whose names end so are not given to the optimiser."""

    def hurt(job: loop.Job) -> None:
        gone = {id(p) for name, p in job.raw.named_parameters() if name.endswith(ends)}
        for optimizer in job.optimizers:
            for group in optimizer.param_groups:
                group["params"] = [p for p in group["params"] if id(p) not in gone]

    return hurt


def cut(head: int) -> Hurt:
    """No gradient arrives in one head of each layer."""

    def hurt(job: loop.Job) -> None:
        for attn in blocks(job, None):
            for name in ("W_Q", "W_K"):
                keep = torch.ones(attn.W_Q.shape[0], 1, 1)
                keep[head] = 0
                getattr(attn, name).register_hook(lambda grad, keep=keep: grad * keep)

    return hurt


@dataclass(frozen=True)
class Shuffled:
    """The tokens of another source, in an order that says nothing: shuffled over all rows."""

    source: Any

    def rows(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return self._shuffle(self.source.rows(rng, n), rng)

    def held_out(self, n: int) -> np.ndarray:
        return self._shuffle(self.source.held_out(n), np.random.default_rng(7))

    def _shuffle(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rows[:, 1:] = rng.permutation(rows[:, 1:].ravel()).reshape(len(rows), -1)
        return rows


def shuffle(job: loop.Job) -> None:
    job.data = replace(job.data, source=Shuffled(job.data.source))


def blind(job: loop.Job) -> None:
    """Every token has the same vector, for ever."""
    with torch.no_grad():
        job.raw.embed.W_E.zero_()
    job.raw.embed.W_E.requires_grad_(False)


def identity(size: float) -> Hurt:
    """W_Q and W_K of one head as wide as the stream are a multiple of the identity: a token looks for its like."""

    def hurt(job: loop.Job) -> None:
        with torch.no_grad():
            for attn in blocks(job, None):
                attn.W_Q[0] = attn.W_K[0] = size * torch.eye(attn.W_Q.shape[1])

    return hurt


def once(at: int) -> Hurt:
    """One forward pass in training mode is not finite, and none after it."""

    def hurt(job: loop.Job) -> None:
        calls = [0]

        def broken(module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor | None:
            calls[0] += module.training
            return output * torch.nan if module.training and calls[0] == at else None

        job.raw.register_forward_hook(broken)

    return hurt


def batch(at: int) -> Hurt:
    """What comes out for the batch of one step is not finite, whenever it comes."""

    def hurt(job: loop.Job) -> None:
        bad = job.data.train(at, job.config.optim.batch_size)[:, :-1]

        def broken(_module: Any, args: Any, output: torch.Tensor) -> torch.Tensor | None:
            return output * torch.inf if args[0].shape == bad.shape and bool((args[0] == bad).all()) else None

        job.raw.register_forward_hook(broken)

    return hurt


def swell(job: loop.Job) -> None:
    """W_E grows by a fifth at every step, whatever the loss says."""

    def grow(*_: Any) -> None:
        with torch.no_grad():
            job.raw.embed.W_E.mul_(1.2)

    job.optimizers[0].optimizer.register_step_post_hook(grow)
