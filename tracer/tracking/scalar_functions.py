"""Functions of a person that are asked for numbers at each record: f(model, step) -> {name: number}.

A function sees the model as it is at that record, in eval mode and without gradients; afterwards its mode and every
random state are as they were. One that fails or gives what cannot be kept is named in a warning, and the record goes on
without it. One that takes too long is asked less often.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tracer.huggingface.building import same_dice
from tracer.named_code import FREE_SECONDS, SHARE, name_of, named
from tracer.torch_internals import norms
from tracer.tracking.own_numbers import OwnNumbers

Scalars = str | Callable[[Any, int], Mapping[str, Any]]
"""A function, or its `module:name`."""


class ScalarFunctions:
    """Those of one training; what they give is kept for its next record."""

    def __init__(self, given: Scalars | Sequence[Scalars], share: float = SHARE, free: float = FREE_SECONDS) -> None:
        several = (given,) if isinstance(given, str) or callable(given) else tuple(given)
        self.names = [name_of(one) for one in several]
        self._functions = [named(one, "scalars") if isinstance(one, str) else one for one in several]
        for name, function in zip(self.names, self._functions, strict=True):
            if not callable(function):
                raise ValueError(f"scalars={name!r} is not a function of a model and a step")
        self._share, self._free, self._spent = share, free, 0.0
        self._last: dict[str, float] = {}
        """Seconds of the latest call, by name."""

    def ask(self, own: OwnNumbers, model: nn.Module, step: int, training: float, must: bool = False) -> None:
        """Ask those that the time of training so far, in seconds, pays for; `must`: all of them."""
        if not self._functions:
            return
        with as_it_is(model):
            for name, function in zip(self.names, self._functions, strict=True):
                cost = self._last.get(name, 0.0)
                if name in self._last and not must and self._spent + cost > self._free + self._share * training:
                    own.say_once(f"{name} costs", (
                        f"manyeyes asks {name} less often than at each record: it took {cost:.2g} s, and functions "
                        f"may take {self._share:.1%} of the training time"
                    ))  # fmt: skip
                    continue
                began, before = time.perf_counter(), _sizes(model)
                try:
                    numbers = function(model, step)
                except Exception as error:  # somebody's code, which raises whatever it runs into
                    own.say_once(name, f"manyeyes records without {name}: {type(error).__name__}: {error}")
                else:
                    own.keep(numbers, name)
                if changed := [param for param, size in _sizes(model).items() if size != before.get(param)]:
                    own.say_once(f"{name} changes", (
                        f"{name} changes {changed[0]} of the model: this training is no longer the one without it"
                    ))  # fmt: skip
                self._last[name] = time.perf_counter() - began
                self._spent += self._last[name]


def _sizes(model: nn.Module) -> dict[str, float]:
    """The norm of each weight that lies here whole, all read at once."""
    there = {
        name: p.detach() for name, p in model.named_parameters()
        if type(p.data) is Tensor and p.is_floating_point() and not p.is_meta
    }  # fmt: skip
    if not there:
        return {}
    sizes = norms([*there.values()])
    read = torch.stack([size.to(sizes[0].device, torch.float32) for size in sizes]).nan_to_num().tolist()
    return dict(zip(there, read, strict=True))


@contextlib.contextmanager
def as_it_is(model: nn.Module) -> Iterator[None]:
    """Eval mode, no gradients, and random states and modes put back."""
    modes = [(module, module.training) for module in model.modules()]
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with torch.no_grad(), same_dice([*devices]):
        try:
            for module, _ in modes:
                module.training = False  # eval() may be somebody's code, which does more
            yield
        finally:
            for module, training in modes:
                module.training = training
