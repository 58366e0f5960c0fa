"""The first value of a model that is not finite, in order of computation: one forward pass with every module watched.

1. The weights are looked at where they stand: a bad one is named with its head, or its row of an embedding.
2. The model runs on a batch in eval mode, without gradients. Of each module's output, and of q, k, v and the scores of
   each attention, the first that is not finite is named. What a bad weight makes is named after that weight.
3. Gradients are looked at in the order of the backward pass, which is that of the weights from the last to the first.
4. What grew GREW-fold since the last finite record is named beside it: a softmax overflows long after W_Q has grown.

Derived here. A row of scores that only a mask made -inf is finite.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from einops import rearrange
from torch import Tensor, nn

from tracer.diagnosis.growth import GREW
from tracer.heads.call import AttentionCall
from tracer.hooks.inputs import Inputs
from tracer.hooks.sites import plain
from tracer.measures.gradients import MATRICES
from tracer.torch_internals import tree_leaves
from tracer.watching import ranks
from tracer.watching.head_weights import HeadMatrices
from tracer.watching.watcher import Watcher

UNKNOWN = "layer unknown"


@dataclass(frozen=True)
class BadTensor:
    """A tensor that is not finite: a weight, an output of a module, or a part of an attention."""

    where: str
    layer: int | None = None
    heads: tuple[int, ...] = ()
    """Those of its layer that are not finite, where these are not all."""
    weight: bool = False
    detail: str = ""
    """What `where` does not say: which matrix, which row of a table."""

    @property
    def head(self) -> int | None:
        return self.heads[0] if len(self.heads) == 1 else None

    def __str__(self) -> str:
        within = "" if self.layer is None else f"layer {self.layer}"
        if self.heads:
            within += f", head{'s' * (len(self.heads) > 1)} {', '.join(map(str, self.heads))}"
        said = ", ".join(part for part in (within, self.detail) if part)
        return self.where + (f" ({said})" if said else "")


Cause = Literal["weight", "activation", "loss", "gradient", "update", "unknown"]
"""What the first bad value is: a weight that the optimiser did not make so, an activation, the loss itself, a gradient,
what the optimiser's step made of a weight."""


@dataclass(frozen=True)
class FirstBad:
    """The first value that is not finite, at the update where it appeared."""

    cause: Cause
    place: BadTensor
    step: int
    """Updates made before it."""
    how: str
    """What else was seen, in sentences."""

    loss: Literal["finite", "not finite", "unknown"] = "unknown"
    """That of this update."""

    def facts(self, step: int) -> dict[str, Any]:
        """What run.json says of it. `step`: of the first loss that was not finite, or of the update after which weights
        were not while the loss still was."""
        place = self.place
        text = f"not finite at step {step}, first in {place}. {self.how}".strip()
        first = {"where": place.where, "step": self.step, "layer": place.layer, "head": place.head}
        return {
            "step": step, "text": text, "cause": self.cause, "how": self.how, "loss": self.loss,
            "detail": place.detail, "non_finite": first,
        }  # fmt: skip


class NotFinite:
    """What is known of the first value of a training that is not finite."""

    def __init__(self) -> None:
        self.first: FirstBad | None = None
        self.since: int | None = None
        """The first step whose kept loss was not finite."""
        self.facts: dict[str, Any] | None = None
        """What run.json says of it, from when the training counts as diverged."""

    def dated(self, steps: np.ndarray, losses: np.ndarray) -> None:
        """Updates that are about to be written."""
        bad = steps[~np.isfinite(losses)]
        if self.since is None and len(bad):
            self.since = int(bad[0])

    def found(self, first: FirstBad | None, step: int) -> None:
        """The training has diverged, seen at this step; None: nobody knows where."""
        self.first = first or FirstBad("unknown", BadTensor(UNKNOWN), step, "")
        self.facts = self.first.facts(self.first.step)

    def told(self, step: int) -> str:
        """In words, once all updates are dated; `step`: those made so far."""
        assert self.first is not None
        first = self.first if self.since is None else replace(self.first, loss="not finite")
        self.facts = first.facts(step if self.since is None else self.since)
        return self.facts["text"]


@dataclass(frozen=True)
class Model:
    """What is known of the model that is looked at."""

    module: nn.Module
    params: Mapping[str, Tensor]
    watcher: Watcher
    """The one that has found its attentions."""
    heads: HeadMatrices | None
    blocks: tuple[nn.Module, ...]

    def bad_weights(self) -> list[str]:
        """The weights, or of sharded ones this process's parts, that hold a value that is not finite."""
        return [name for name, p in self.params.items() if not finite(ranks.local(p.detach()))]

    def bad_gradients(self) -> list[str]:
        """The weights whose gradient is not finite, in the order of the backward pass."""
        grads = {name: p.grad for name, p in self.params.items() if p.grad is not None}
        return [name for name, grad in reversed(grads.items()) if not finite(ranks.local(grad))]

    def count(self) -> str:
        """How many weights are not finite, in words."""
        bad, n = self.bad_weights(), len(self.params)
        return f"{len(bad)} of {n} weights were not finite." if bad else "Every weight was finite."

    def place(self, name: str, tensor: Tensor) -> BadTensor:
        """A weight or its gradient, by name: with its layer, and the heads of which it is not finite."""
        layer = self.layer_of(name)
        for part in [] if self.heads is None else self.heads.parts:
            if part.param == name and not ranks.sharded(self.module):
                slices = tensor.detach().movedim(part.axis, 0)[part.features]
                bad = [head for head, x in enumerate(slices) if not finite(x)]
                if bad and len(bad) < len(slices):
                    heads = tuple(part.first_head + head for head in bad)
                    return BadTensor(name, part.layer, heads, True, f"W_{MATRICES[part.matrix]}")
        return BadTensor(name, layer, (), True, self._row(name, tensor))

    def layer_of(self, path: str) -> int | None:
        """The layer whose block, or whose attention, holds this module or weight; None where no one does."""
        paths = {id(module): plain(name) for name, module in self.module.named_modules()}
        blocks = [paths.get(id(block), "") for block in self.blocks]
        sites = [layer.name.partition("#")[0] for layer in self.watcher.layers]
        for prefixes in (blocks, sites):
            for i, prefix in enumerate(prefixes):
                if prefix and f"{path}.".startswith(f"{prefix}."):
                    return i
        return None

    def _row(self, name: str, tensor: Tensor) -> str:
        """Which row of an embedding, where it is one."""
        owner = dict(self.module.named_modules()).get(name.rpartition(".")[0])
        if not isinstance(owner, nn.Embedding) or tensor.ndim != 2:
            return ""
        bad = (~tensor.detach().isfinite()).any(1).nonzero().flatten().tolist()
        return f"row {bad[0]} of {len(tensor)}" if len(bad) == 1 else f"{len(bad)} of {len(tensor)} rows"


class _Look(Watcher):
    """Of the forward pass inside: the first value that is not finite."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.module, keep=0)
        self.map, self._of = model.watcher.map, model
        self.first: BadTensor | None = None
        self._modules = {plain(name): module for name, module in model.module.named_modules()}

    def _see(self, call: AttentionCall) -> None:
        if self.interceptor is None or not self.interceptor.showing:
            return
        layer = self.map.layers[call.layer]
        name = layer.name.partition("#")[0]
        if self.first is None:
            if bad := _of_call(call):
                part, heads = bad
                own = self._weight_of(self._modules[name]) if name in self._modules else None
                self.first = own or BadTensor(f"{part} of {name}", call.layer, heads)
        elif not self.first.heads and self.first.where.startswith(f"{name}.") and (bad := _of_call(call)):
            self.first = replace(self.first, layer=call.layer, heads=bad[1])

    def made(self, name: str, module: nn.Module, output: Any) -> None:
        """A module has ended."""
        if self.first is None and not all(finite(x) for x in tree_leaves(output) if isinstance(x, Tensor)):
            self.first = self._weight_of(module) or BadTensor(
                f"output of {name or 'the model'}", self._of.layer_of(name)
            )

    def _weight_of(self, module: nn.Module) -> BadTensor | None:
        """A weight of this very module that is not finite."""
        mine = {id(p) for p in module.parameters(recurse=False)}
        own = ((given, p) for given, p in self._of.params.items() if id(p) in mine and not finite(p))
        return next((self._of.place(given, p) for given, p in own), None)


def _of_call(call: AttentionCall) -> tuple[str, tuple[int, ...]] | None:
    """What of an attention is not finite first, and in which of its heads, where not in all."""
    n = call.n_heads
    for part, x in (("q", call.q), ("k", call.k), ("v", call.v)):
        if x is not None and not finite(x):
            bad = ~rearrange(x.isfinite(), "batch pos head d -> head (batch pos d)").all(1)
            return part, _named(bad.repeat_interleave(n // len(bad)), call)
    rows = call.row_maxima()
    bad = rearrange(rows.isnan() | (rows == torch.inf), "batch head query_pos -> head (batch query_pos)").any(1)
    if call.weights is not None and call.largest is None:
        bad = ~rearrange(call.weights.isfinite(), "batch head query key -> head (batch query key)").all(1)
    return ("attention scores", _named(bad, call)) if bool(bad.any()) else None


def _named(bad: Tensor, call: AttentionCall) -> tuple[int, ...]:
    found = bad.nonzero().flatten().tolist()
    return () if len(found) == len(bad) else tuple(call.first_head + head for head in found)


@torch.no_grad()
def in_forward(model: Model, inputs: Inputs) -> BadTensor | None:
    """The first value that is not finite when the model runs on these inputs; None where all are finite."""
    with contextlib.ExitStack() as inside:
        look = _Look(model)
        if model.watcher.layers:
            inside.enter_context(look)
        else:  # what is recorded without heads stays so; a stance is in force as soon as it is made
            inside.enter_context(torch.compiler.set_stance("force_eager"))
        for name, module in model.module.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):
                hook = functools.partial(_ended, look, plain(name))
                inside.callback(module.register_forward_hook(hook).remove)
        inputs.run(model.module)
    return look.first


def _ended(look: _Look, name: str, module: nn.Module, _args: Any, output: Any) -> None:
    look.made(name, module, output)


def grown(model: Model, before: Mapping[str, Any]) -> tuple[str, float] | None:
    """The weight whose norm grew the most since `before` (`weight_norm` of a record), GREW-fold at least."""
    norms = before.get("weight_norm")
    if norms is None or ranks.sharded(model.module):
        return None
    now = np.array([float(torch.linalg.vector_norm(p.detach().double())) for p in model.params.values()])
    times = np.divide(now, norms, out=np.full_like(now, np.nan), where=(norms > 0) & np.isfinite(now))
    if not (times > GREW).any():
        return None
    at = int(np.nanargmax(times))
    return list(model.params)[at], float(times[at])


def finite(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex()) or bool(x.isfinite().all())
