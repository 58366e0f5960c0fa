"""Is everything finite in this update? Where not, the model is looked at once, before the optimiser moves its weights.

1. Before the optimiser's step one number is read: the loss that the model returned, plus a sample of its gradients
   (SAMPLED of them, of biases and gains, which feel every position). A loss that is not finite has no finite gradient,
   so this sees it also where the loop computes the loss by itself.
2. On the CPU all gradients, and after the step all weights, are read where a quarter of `share` pays for that; of
   models up to SMALL numbers always, since a sample costs as much. On an accelerator the sample of gradients is all,
   and reading it waits once an update for the backward pass.
3. After the step torch's count of writes to each weight is kept: a weight that became bad between two updates was
   written to by something else than the optimiser.
4. Where 1, 2 or a kept loss is not finite, `first_bad` looks at the weights, at the batch of this update and at the
   gradients. Weights that are finite after the step speak for a loop that mends or skips such an update: it goes on.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tracer.hooks.inputs import Inputs
from tracer.torch_internals import norms, stored, version
from tracer.watching.first_bad import UNKNOWN, BadTensor, FirstBad, Model, finite, grown, in_forward
from tracer.watching.pace import Pace
from tracer.watching.ranks import local, sharded

SAMPLED, NUMBERS = 8, 4096
"""Tensors of which a sample is read at every update, and numbers of each."""
SMALL = 20_000
"""Numbers of a model whose gradients and weights are read whole."""
MOMENTA = ("exp_avg", "momentum_buffer")
"""What torch's optimisers call the running mean of gradients."""
FALSE_ALARMS = 8
"""Looks that find every value finite (sums of large numbers overflow), after which no sample is read any more."""


class FiniteCheck:
    """What is read of every update of one model, once its attentions are known."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._model: Model | None = None
        self._undisturbed: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self._batch: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        """What the model was last called with in training, until the update is over."""
        self._before: Mapping[str, Any] = {}
        """The last record whose numbers were finite."""
        self._found: FirstBad | None = None
        self._looked = self._optimised = self._ever = False
        """In this update: were gradients looked at, was the optimiser seen? And was it ever?"""
        self._versions: dict[str, int] = {}
        """Writes to each weight, counted after the optimiser's last step."""
        self._sound = False
        """Were all weights finite then?"""
        self._vast_since: int | None = None
        """The first update after which weights were finite, and their squares were not."""
        self._cost = {"gradients": 0.0, "weights": 0.0}
        self._alarms = 0
        self._step = 0

    def watch(self, model: Model, undisturbed: Callable[[], AbstractContextManager[None]]) -> None:
        self._model, self._undisturbed = model, undisturbed
        vectors = [p for p in model.params.values() if p.ndim == 1]
        self._sampled = _spread(vectors or list(model.params.values()), SAMPLED)
        self._params = list(model.params.values())
        self._cpu = self._pace.device.type == "cpu" and not sharded(model.module)
        self._small = self._cpu and sum(p.numel() for p in self._params) <= SMALL

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called in training."""
        self._batch = (args, kwargs)

    def recorded(self, step: int, row: Mapping[str, Any]) -> None:
        """A record was made."""
        norms = row.get("weight_norm")
        if norms is not None and np.isfinite(norms).all() and math.isfinite(row.get("train_loss", 0.0)):
            self._before = {"step": step, "weight_norm": np.asarray(norms, float)}

    def optimised(self) -> None:
        """An optimiser steps."""
        self._optimised = self._ever = True

    def before(self, optimizer: torch.optim.Optimizer, step: int, loss: Tensor | None) -> None:
        """The gradients of an update are there, and no optimiser has begun. `loss`: what the model returned."""
        if self._looked or self._model is None or self._is_graph or getattr(optimizer, "found_inf", None) is not None:
            return
        self._looked, self._step = True, step
        grads = [p.grad for p in self._sampled if p.grad is not None]
        lost = [] if loss is None else [loss]

        def every() -> list[Tensor]:
            return [p.grad for p in self._params if p.grad is not None and not p.grad.is_sparse] + lost

        if self._suspicious([*grads, *lost], every, "gradients"):
            self._found = self._look(loss, optimizer)
            self._alarms += self._found is None

    def after(self, closure: bool) -> None:
        """The optimiser has stepped; the backward pass was part of that, where it is given a closure."""
        model = self._model
        if model is None or self._found is not None or self._is_graph:
            return
        late = [p.grad for p in self._sampled if closure and p.grad is not None]
        self._versions = {name: version(p) for name, p in model.params.items()}
        self._sound = False
        if not self._cpu:  # to read weights is to wait for the optimiser: the next update will tell
            return
        if self._suspicious([*self._sampled, *late], lambda: [*self._params, *late], "weights"):
            self._found = self._after_step(model, closure)
            self._alarms += self._found is None
            self._vast_since = self._vast_since if self._found or self._vast_since is not None else self._step

    def of_update(self, step: int, kept: Callable[[bool], float | None]) -> FirstBad | None:
        """What was not finite in this update; None where nothing was, or where the weights are finite after all.
        `kept`: its loss, which may be waited for or not; None where it is not known."""
        found, model = self._found, self._model
        loss = kept(found is not None)
        broken = loss is not None and not math.isfinite(loss)
        if model is None or found is None and not broken or self._went_on(model):
            found = None
        elif found is None:
            found = self._too_late(model, step)
        elif found.cause == "gradient" and broken:
            found = _of_loss(found, loss)
        self._found, self._looked, self._optimised, self._batch = None, False, False, None
        if found is None:
            return None
        return replace(found, loss="unknown" if loss is None else "not finite" if broken else "finite")

    @property
    def _is_graph(self) -> bool:
        """Is a CUDA graph being captured, in which nothing can be read?"""
        return self._pace.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def _went_on(self, model: Model) -> bool:
        """Did the loop skip this update, or mend it?"""
        return self._ever and (not self._optimised or not model.bad_weights())

    def _suspicious(
        self, sample: list[Tensor], every: Callable[[], list[Tensor]], what: Literal["gradients", "weights"]
    ) -> bool:
        """Is a sum over a sample, or over all where that is affordable, not finite?"""
        if self._alarms >= FALSE_ALARMS:
            return False
        whole = self._small or self._cpu and self._pace.may_check(self._cost[what])
        before = self._pace.checking
        with self._pace.checks(), torch.no_grad():
            found = 0.0 if self._small or not sample else _sum(sample)
            found = found + _norm(every()) if whole else found
            found = float(found) if self._cpu else found
        self._cost[what] = self._pace.checking - before if whole else self._cost[what]
        fine = math.isfinite(found)  # of an accelerator this waits for the backward pass, which is no cost of ours
        if what == "weights":
            self._sound = fine and whole
        return not fine

    def _forward(self, inputs: Inputs | None) -> BadTensor | None:
        if inputs is None or self._model is None or sharded(self._model.module):
            return None
        with self._undisturbed():
            return in_forward(self._model, inputs)

    def _inputs(self) -> Inputs | None:
        return None if self._batch is None else Inputs.of(*self._batch)

    def _look(self, loss: Tensor | None, optimizer: torch.optim.Optimizer) -> FirstBad | None:
        """Before the optimiser's step, with the weights of this update's forward pass."""
        model = self._model
        assert model is not None
        place, grads = self._forward(self._inputs()), model.bad_gradients()
        bad = [] if place is not None else model.bad_weights()
        if bad:
            place = model.place(bad[0], model.params[bad[0]])
        if place is not None and place.weight:
            return self._of_weight(model, place, optimizer)
        if place is not None:
            return FirstBad("activation", place, self._step, f"Every weight was finite. {self._growth()}".strip())
        if not grads:
            return None
        grad = model.params[grads[0]].grad
        assert grad is not None
        place = model.place(grads[0], local(grad))
        n = sum(p.grad is not None for p in model.params.values())
        place = replace(place, where=f"gradient of {place.where}", weight=False)
        how = (
            f"All weights were finite, and all activations on this update's batch. {len(grads)} of {n} gradients "
            "were not finite; a backward pass reaches this one first."
        )
        found = FirstBad("gradient", place, self._step, how)
        return found if loss is None or math.isfinite(float(loss)) else _of_loss(found, float(loss))

    def _of_weight(self, model: Model, place: BadTensor, optimizer: torch.optim.Optimizer) -> FirstBad:
        """A weight that was not finite before the forward pass: who made it so?"""
        weight, since = model.params[place.where], "after the optimiser's step before this update"
        if self._versions.get(place.where) == version(weight) and not self._sound:
            state = optimizer.state.get(weight, {})
            gradient = [name for name in MOMENTA if isinstance(state.get(name), Tensor) and not finite(state[name])]
            if gradient:
                how = f"Its {gradient[0]} in the optimiser is not finite either, which an earlier gradient made so."
                before = replace(place, where=f"gradient of {place.where}", weight=False)
                return FirstBad("gradient", before, self._step - 1, f"{model.count()} {how}")
            how = "The optimiser's step before this update made it so: nothing that torch counts wrote to it since."
            return FirstBad("update", place, self._step - 1, f"{model.count()} {how}")
        since = since if self._versions else "before the first update was seen"
        how = f"It was so before this update's forward pass: something else than the optimiser wrote to it {since}."
        return FirstBad("weight", place, self._step, f"{model.count()} {how}")

    def _after_step(self, model: Model, closure: bool) -> FirstBad | None:
        bad, grads = model.bad_weights(), model.bad_gradients() if closure or not self._looked else []
        if not bad:
            return None
        place = model.place(bad[0], model.params[bad[0]])
        if grads:  # the backward pass ran inside the step
            how = "Gradients were not finite; the optimiser had moved every weight before it could be looked at."
            return FirstBad("unknown", BadTensor(UNKNOWN), self._step, f"{model.count()} {how}")
        how = "The optimiser's step made it so: loss, activations and gradients of this update showed nothing before."
        return FirstBad("update", place, self._step, f"{model.count()} {how}")

    def _too_late(self, model: Model, step: int) -> FirstBad:
        """A kept loss is not finite, and nothing was looked at before the update."""
        bad = model.bad_weights()
        place = self._forward(self._inputs()) if len(bad) < len(model.params) else None
        if place is not None:
            return FirstBad("weight" if place.weight else "activation", place, step, model.count())
        if bad:
            how = "The weights had been overwritten before they could be looked at."
            return FirstBad("unknown", BadTensor(UNKNOWN), step, f"{model.count()} {how}")
        return FirstBad(
            "loss", BadTensor("the loss"), step, "All weights were finite, and all activations on this batch."
        )

    def _growth(self) -> str:
        """What has grown since the last finite record."""
        found = None if self._model is None or not self._before else grown(self._model, self._before)
        if found is None:
            return ""
        name, times = found
        grew = f"{name} had grown {times:.1e}-fold since the record of step {self._before['step']:,}"
        return grew + (
            "." if self._vast_since is None else f": in the optimiser's step of update {self._vast_since:,}."
        )


def _of_loss(found: FirstBad, loss: float | None) -> FirstBad:
    """The loss itself, where every activation that led to it was finite."""
    how = (
        f"The loss was {loss}, while all weights were finite, and all activations on this update's batch when they "
        "were computed again without dropout: look at how the loss is computed from the output."
    )
    return FirstBad("loss", BadTensor("the loss"), found.step, how)


def _spread(given: list[Tensor], n: int) -> list[Tensor]:
    """At most n of them, evenly, with the first and the last."""
    n = min(n, len(given))
    at = sorted({round(i * (len(given) - 1) / max(1, n - 1)) for i in range(n)})
    return [given[i] for i in at]


def _sum(tensors: list[Tensor]) -> Any:
    """Of some numbers of each tensor: not finite where one of them is not."""
    some = [_some(x) for x in tensors]
    alike = len({(x.device, x.dtype) for x in some}) == 1
    return torch.cat(some).sum(dtype=torch.float32) if alike else sum(float(x.sum()) for x in some)


def _some(x: Tensor) -> Tensor:
    x = local(x.detach())
    x = stored(x) if x.is_sparse else x
    if x.ndim != 1:
        x = x.view(-1) if x.is_contiguous() else x[:1].reshape(-1)
    return x[:NUMBERS] if len(x) > NUMBERS else x


def _norm(tensors: list[Tensor]) -> float:
    """Of all numbers of all tensors: not finite where one of them is not, or where its square is not."""
    return sum(map(float, norms(tensors)))
