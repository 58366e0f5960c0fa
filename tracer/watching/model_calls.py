"""The calls of a model that is trained: what is looked at in each, before it and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tracer.hooks.inputs import is_blind
from tracer.watching.calls import Calls
from tracer.watching.entrance import Entrance
from tracer.watching.every_update import EveryUpdate
from tracer.watching.finite_check import FiniteCheck
from tracer.watching.guard import RecorderGuard
from tracer.watching.one_record import OneRecord
from tracer.watching.pace import Pace
from tracer.watching.pipelines import rehearsed
from tracer.watching.signs import Signs
from tracer.watching.training_passes import LargestLogits


class ModelCalls:
    """Hooks on the model, until they are removed; those of evaluations hear of it, too."""

    def __init__(
        self, model: nn.Module, guard: RecorderGuard, entrance: Entrance, pace: Pace, record: OneRecord,
        every: EveryUpdate, signs: Signs, finite: FiniteCheck, largest: LargestLogits,
        known: Callable[[tuple[Any, ...], dict[str, Any]], bool],
    ) -> None:  # fmt: skip
        """`known`: has the model been measured, or is it now, at this call?"""
        self._guard, self._entrance, self._pace, self._record = guard, entrance, pace, record
        self._every, self._signs, self._finite, self._largest, self._known = every, signs, finite, largest, known
        self.any = False
        """Was there one in this update, or before the first?"""
        self._blind = False
        self._calls: Calls | None = Calls(model, self._begins, self._ended)

    @property
    def heard(self) -> bool:
        """False once the hooks are removed."""
        return self._calls is not None

    def remove(self) -> None:
        if self._calls is not None:
            self._calls.remove()
            self._calls = None

    def _begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """By the training or by an evaluation."""
        if self._guard.off is not None or self._calls is None or self._record.asking or rehearsed():
            return
        if torch.is_grad_enabled():
            self._entrance.trains()
        with self._entrance.unless_busy() as free, self._guard.safely():
            if not free or self._calls is None:
                return
            self._blind = is_blind(args, kwargs)
            if self._blind:  # an empty batch, or a dry run: nothing of it is measured
                self.any = True
                return
            if not self._known(args, kwargs) or self._guard.off is not None:
                return
            self._every.called(args, kwargs)
            if torch.is_grad_enabled():
                self._finite.called(args, kwargs)
                with self._pace.checks():
                    self._signs.called(args, kwargs, record=self._record.row is not None)
            self._largest.pass_begins(self._calls.at, args, kwargs)

    def _ended(self, module: nn.Module, kwargs: dict[str, Any], output: Any) -> None:
        with self._entrance.unless_busy() as free, self._guard.safely():
            if not free or self._blind or self._record.asking:
                return
            self._every.returned(module, kwargs, output)
            if self._record.row is not None and torch.is_grad_enabled():
                with self._guard.looking():
                    self._signs.returned(output)
