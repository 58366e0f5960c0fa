"""A run that is recorded: what a record has beside what is measured, how it is written and told, and how the run ends.

One of these for each training, ours or somebody else's. When a record is due, and what becomes of the training where
something fails, is for its loop to say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from torch import nn

from tracer.store import RunWriter
from tracer.tracking.clock import Clock
from tracer.tracking.own_numbers import OwnNumbers
from tracer.tracking.scalar_functions import ScalarFunctions
from tracer.tracking.scalars import scalars
from tracer.tracking.telling import Telling


class Recording:
    """`ask` and `write` a record, in that order, and `end` once."""

    def __init__(self, clock: Clock, telling: Telling, functions: ScalarFunctions) -> None:
        self.clock, self.telling, self.functions = clock, telling, functions
        self.own = OwnNumbers()
        """What a person gave since the last record."""
        self.writer: RunWriter | None = None
        """None before the run is there, and in a process that is not the first."""
        self.row: dict[str, Any] = {}
        """The latest record that is complete,"""
        self._params: Sequence[str] = ()
        self._last: dict[str, float] | None = {}
        """and by readable names, once somebody asked."""

    def begin(self, writer: RunWriter | None, params: Sequence[str]) -> None:
        """The run is there; `params` names what is measured of each tensor."""
        self.writer, self._params = writer, params
        if writer is not None:
            self.clock.earlier = writer.meta.get("cost", {})
            self.clock.writing = lambda: writer.seconds

    def ask(self, model: nn.Module, step: int, must: bool) -> None:
        """What functions of a person give of the model as it is now; `must`: all of them, whatever they take."""
        self.functions.ask(self.own, model, step, self.clock.training, must)

    def write(self, step: int, row: dict[str, Any]) -> None:
        """The record is complete but for what a person gave."""
        self.row, self._last = row | self.own.take(self.writer, row), None
        if self.writer is not None:
            self.writer.record(step, self.row)
            self.telling.record(self.writer, step, self.row, lambda: self.last)

    @property
    def last(self) -> dict[str, float]:
        """The latest record by readable names: `loss/train`, `attn/L3H5/entropy`, ..."""
        if self._last is None:
            self._last = scalars(self.row, self._params)
        return self._last

    def end(self, status: str, facts: dict[str, Any]) -> None:
        """Say in the run how it ended, and what recording cost; trackers are told, whatever fails."""
        if self.writer is not None:
            facts = {**facts, "cost": self.clock.cost()}
            with contextlib.ExitStack() as ending:  # each, the last first, whatever the others raise
                ending.callback(self.writer.close, status, **facts)
                ending.callback(self.telling.end, self.writer, status, facts)
