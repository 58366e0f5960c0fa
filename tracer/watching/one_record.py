"""One record of somebody's training: measured between two steps, complete when the step that follows is over."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import nn

from tracer.tracking.recording import Recording
from tracer.watching.pace import Pace
from tracer.watching.probing import Probing
from tracer.watching.ranks import Ranks
from tracer.watching.signs import Signs
from tracer.watching.undisturbed import undisturbed
from tracer.watching.updates import Update
from tracer.watching.weight_snapshots import Snapshots


class Begun(NamedTuple):
    """A record whose step is over."""

    row: dict[str, Any]
    """Empty where measuring failed."""
    update: Update | None
    """What was measured of the update; None where its recorder has ended meanwhile."""


class OneRecord:
    """The one that is being made, if any; and what was kept of those before it."""

    def __init__(
        self, model: nn.Module, pace: Pace, recording: Recording, signs: Signs, snapshots: Snapshots, ranks: Ranks,
        step: int, pictures: Collection[int] = (),
    ) -> None:  # fmt: skip
        """`pictures`: steps whose patterns and weights are kept in any case."""
        self._at = pictures
        self._model, self._pace, self._recording, self._ranks = model, pace, recording, ranks
        self._signs, self.snapshots = signs, snapshots
        self.row: dict[str, Any] | None = None
        """What is known of it so far; None while none is being made."""
        self.step = step
        """Of the latest."""
        self.update: Update | None = None
        self.asking = False
        """Does a function of a person run the model now?"""
        self._expected = False
        self._pictures = self._since_picture = 0

    def measure(
        self, probing: Probing, step: int, made: int, last: bool, stepping: torch.optim.Optimizer | None,
        quietly: Callable[[], AbstractContextManager[Any]],
    ) -> None:  # fmt: skip
        """Begin one: the model as it is after `step` updates, `made` of them in this job. `stepping`: the optimiser
        whose step this is part of; `quietly`: around what is measured of the update."""
        self._expected = True
        step_ms, pace, must = self._pace.step_ms(made), self._pace, last or self._ranks.world > 1
        with pace.measuring():
            picture = (
                last or step in self._at or self._since_picture >= self._pictures // 10
            )  # ever rarer: about 10 ln(records) in all
            self._since_picture = 0 if picture else self._since_picture + 1
            self._pictures += picture
            self.step = step
            if pace.every is not None:  # else the pace of all records is that of what they cost
                probing.own.measures.begins(pace.training, must=must)
            self.row = {
                **probing.measure(step, picture), "step_ms": step_ms, "unmoved": self._signs.unmoved(probing.params),
            }  # fmt: skip
            self._ask(must)
            self.update = Update(probing.params, quietly, probing.heads)
            if stepping is not None:
                self.update.starts(stepping)
            if picture:
                self.snapshots.take(probing.writer, step, last)

    def _ask(self, must: bool) -> None:
        """What functions give of the model as it is now; of several processes in each, as one may need all of them."""
        if not self._recording.functions.names:
            return
        self.asking = True
        try:
            with undisturbed(self._model, self._pace.device), torch.compiler.set_stance("force_eager"):
                self._recording.ask(self._model, self.step, must)
        finally:
            self.asking = False

    def ends(self) -> Begun | None:
        """The step is over: what was begun; None where that was none of a record."""
        begun = Begun(self.row or {}, self.let_go()) if self._expected else None
        self._expected, self.row = False, None
        self.let_go()
        return begun

    def let_go(self) -> Update | None:
        """The update that was being measured, which no longer hears of it."""
        update, self.update = self.update, None
        if update is not None:
            update.remove()
        return update
