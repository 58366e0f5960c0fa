"""One update of somebody's training loop: gradients before and after clipping, weights, and how far these move.

0. The norms of the weights are taken at once: they are those of the record, whether an update follows or not.
1. When a backward pass has ended, the norms of what the gradients have grown to are taken. Of several passes before an
   update (accumulation) the last one stands; whatever scales or clips gradients comes after it.
2. When the optimiser starts, they are taken again: these are clipped, and unscaled. The loss scale of a GradScaler,
   which is then on the call stack, is divided out of the first ones.
3. Where the backward pass runs inside the optimiser's step (a closure, as Lightning's), the second ones are taken when
   the step has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tracer.measures import gradients
from tracer.torch_internals import when_backward_ends
from tracer.watching.head_weights import HeadMatrices
from tracer.watching.ranks import local

MOST_COPIED = 500_000_000
"""Weights are copied, to measure their update, up to this many parameters."""


class Update:
    """The update that is to come, measured as it happens; `quietly` is the context in which that is done.

    Of weights that are sharded it measures this process's part, and norms are of that.
    """

    def __init__(
        self, params: Mapping[str, nn.Parameter], quietly: Callable[[], AbstractContextManager[Any]],
        heads: HeadMatrices | None = None,
    ) -> None:  # fmt: skip
        self._params, self._quietly, self._heads = params, quietly, heads
        self._before: Tensor | None = None
        self._clipped: Tensor | None = None
        self._moved: Tensor | None = None
        self._weight = self._of(self._weights())
        self._old: dict[str, Tensor] = {}
        self._waits = False
        learning = [p for p in params.values() if p.requires_grad]  # some may have been frozen since the run began
        self._handles = [p.register_post_accumulate_grad_hook(self._accumulated) for p in learning]

    def remove(self) -> None:
        """Let go of the parameters."""
        while self._handles:
            self._handles.pop().remove()

    def _accumulated(self, _param: Tensor) -> None:
        """A gradient is there: when all are, and what others (DDP) wanted done by then, look at them."""
        if not self._waits:
            self._waits = True
            when_backward_ends(lambda: when_backward_ends(self._backward_ended))

    def _backward_ended(self) -> None:
        self._waits = False
        if self._handles:
            with self._quietly():
                self._before = self._norms()

    def _norms(self) -> Tensor:
        grads = {n: torch.zeros_like(local(p)) if p.grad is None else local(p.grad) for n, p in self._params.items()}
        return self._of(grads)

    def _of(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The norm of each tensor, then of each head's part of its own."""
        norms = gradients.tensor_norms({name: x.to_dense() if x.is_sparse else x for name, x in tensors.items()})
        return norms if self._heads is None else torch.cat([norms, self._heads.norms(tensors).flatten().to(norms)])

    def _weights(self) -> dict[str, Tensor]:
        return {name: local(p).detach() for name, p in self._params.items()}

    def starts(self, optimizer: torch.optim.Optimizer) -> None:
        """This optimiser is about to step: it may be the first of several."""
        inner = getattr(optimizer, "grad_scale", None)  # a fused optimiser unscales by itself
        norms = self._norms() / (1.0 if inner is None else inner.to(torch.float32))
        if self._clipped is None:
            self._clipped = norms
            if self._before is not None:
                self._before = self._before / loss_scale()
            if sum(p.numel() for p in self._weights().values()) <= MOST_COPIED:
                self._old = gradients.copies(self._weights())
        else:  # the one before this may have cleared its own
            mine = torch.tensor(moved_by(optimizer, self._params.values()), device=norms.device)
            of_heads = norms[len(mine) :] >= self._clipped[len(mine) :]  # else they were cleared
            self._clipped = torch.where(torch.cat([mine, of_heads]), norms, self._clipped)
        self._at_start = self._before

    def ended(self) -> None:
        """The optimiser has stepped."""
        if self._before is not self._at_start:  # the backward pass was part of the step
            self._clipped = self._norms()
        if self._old:
            self._moved = self._of(gradients.differences(self._old, self._weights()))

    def norms(self) -> dict[str, np.ndarray]:
        """Of this process's part of each weight, then of each head: nan where nothing was measured, or none stepped."""
        before = None if self._clipped is None else self._before  # of a step that was skipped it may still be scaled
        found = {"grad_norm": before, "grad_norm_clipped": self._clipped, "weight_norm": self._weight,
                 "update_norm": self._moved}  # fmt: skip
        known = gradients.fetch({name: x for name, x in found.items() if x is not None})
        return unknown(self._params, self._heads) | known


def unknown(params: Mapping[str, Tensor], heads: HeadMatrices | None) -> dict[str, np.ndarray]:
    """The norms where nothing was measured."""
    n = len(params) + (0 if heads is None else 4 * heads.shape[0] * heads.shape[1])
    return {name: np.full(n, np.nan) for name in ("grad_norm", "grad_norm_clipped", "weight_norm", "update_norm")}


def row_of(norms: Mapping[str, np.ndarray], heads: HeadMatrices | None) -> dict[str, Any]:
    """What there is to record of norms of whole weights, by the names of a trace."""
    n = len(norms["weight_norm"]) - (0 if heads is None else 4 * heads.shape[0] * heads.shape[1])
    found = {name: x for name, x in norms.items() if name != "update_norm"}
    moved, weight = (torch.from_numpy(norms[name]) for name in ("update_norm", "weight_norm"))
    found["update_ratio"] = gradients.update_ratio(moved, weight).numpy()
    row: dict[str, Any] = {name: x[:n] for name, x in found.items()}
    if heads is not None:
        row |= {f"head_{name}": x[n:].reshape(*heads.shape, 4) for name, x in found.items()}
    whole, left = (np.linalg.norm(row[name].astype(float)) for name in ("grad_norm", "grad_norm_clipped"))
    return {**row, "clip_factor": np.minimum(1.0, left / whole) if whole else 1.0}


def moved_by(optimizer: torch.optim.Optimizer, params: Iterable[Tensor]) -> list[bool]:
    """Which of the parameters are this optimiser's."""
    theirs = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return [id(p) in theirs for p in params]


def loss_scale() -> float:
    """What the loss was multiplied by: the factor of the GradScaler that is calling this optimiser's step, or 1."""
    frame, step = sys._getframe(), torch.amp.GradScaler.step.__code__
    while frame is not None:
        if frame.f_code is step:
            return frame.f_locals["self"].get_scale()
        frame = frame.f_back
    return 1.0
