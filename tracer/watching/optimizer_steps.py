"""The steps of the optimisers that train a model: what is measured before each and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tracer.hooks.refusals import CannotWatch
from tracer.watching.entrance import Entrance
from tracer.watching.every_update import EveryUpdate
from tracer.watching.finite_check import FiniteCheck
from tracer.watching.guard import RecorderGuard
from tracer.watching.one_record import OneRecord
from tracer.watching.updates import moved_by


class OptimizerSteps:
    """Hooks on every optimiser of the program, until they are removed; those of other models are passed by."""

    def __init__(
        self, model: nn.Module, guard: RecorderGuard, entrance: Entrance, every: EveryUpdate, finite: FiniteCheck,
        record: OneRecord, called: Callable[[], bool], check: Callable[[Optimizer], None],
    ) -> None:  # fmt: skip
        """`called`: was a call of the model seen in this update? `check`: its gradients are there, none has begun."""
        self._model, self._guard, self._entrance, self._called, self._check = model, guard, entrance, called, check
        self._every, self._finite, self._record = every, finite, record
        self.now: Optimizer | None = None
        """The one whose step is under way."""
        self._handles: list[Any] = [
            register_optimizer_step_pre_hook(self._begins),
            register_optimizer_step_post_hook(self._ended),
        ]

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        with self._entrance.unless_busy() as free, self._guard.safely(in_hook=True):
            if not free or self._guard.off is not None or not any(moved_by(optimizer, self._model.parameters())):
                return
            self.now = optimizer
            self._every.rate(optimizer.param_groups[0].get("lr"))
            closure = _closure(args, kwargs)  # which may call the model
            if not self._called() and closure is None:
                raise CannotWatch(
                    "the model is trained, but no call of it could be seen: does it run inside a function that "
                    "torch.compile compiled as a whole? Compile the model instead: torch.compile(model)"
                )
            self._finite.optimised()
            if closure is None:
                self._check(optimizer)
            if self._record.update is not None:
                with self._guard.measuring():
                    self._record.update.starts(optimizer)

    def _ended(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        with self._entrance.unless_busy() as free, self._guard.safely(in_hook=True):
            if not free:
                return
            if self._guard.off is None and self.now is optimizer:
                self._finite.after(_closure(args, kwargs) is not None)
            if self._record.update is not None and self.now is optimizer:
                with self._guard.measuring():
                    self._record.update.ended()
            self.now = None


def _closure(args: Any, kwargs: Any) -> Any:
    return kwargs.get("closure", args[1] if len(args) > 1 else None)
