"""What a run is given of a training: its updates, each record once its step is over, and how it ended."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from tracer.tracking.recording import Recording
from tracer.watching.every_update import EveryUpdate, write
from tracer.watching.finite_check import FiniteCheck
from tracer.watching.first_bad import NotFinite
from tracer.watching.gathering import Gathering
from tracer.watching.one_record import Begun, OneRecord
from tracer.watching.pace import Pace
from tracer.watching.probing import Probing
from tracer.watching.ranks import Ranks
from tracer.watching.signs import Signs
from tracer.watching.training_passes import LargestLogits
from tracer.watching.updates import unknown


class RunRows:
    """`commit` after each step, `end` once."""

    def __init__(
        self, recording: Recording, record: OneRecord, every: EveryUpdate, signs: Signs, largest: LargestLogits,
        finite: FiniteCheck, bad: NotFinite, gathering: Gathering, ranks: Ranks, pace: Pace,
    ) -> None:  # fmt: skip
        self._recording, self._record, self._every, self._signs = recording, record, every, signs
        self._largest, self._finite, self._bad = largest, finite, bad
        self._gathering, self._ranks, self._pace = gathering, ranks, pace
        self.evaluation = float("nan")
        """The loss of the loop's own evaluation, which the next record takes along."""
        self.broken = False
        """Of several processes: did the record that was just completed show the first loss that is not finite?"""

    def commit(self, probing: Probing | None, steps: int, made: int) -> str:
        """The row of the last measurement, now that its step is over; and what is known of the updates before it: of
        `steps`, `made` in this job. Why nothing more can be recorded; empty where all is well."""
        begun, self.broken = self._record.ends(), False
        if probing is None:
            self.evaluation = float("nan")  # of weights that no record is about
        elif begun is not None:
            return self._complete(begun, probing, steps, made)
        elif (writer := probing.writer) is not None and self._ranks.world == 1 and self._wait_no_longer:
            write(writer, self._dated(self._every.take()))
        return ""

    @property
    def _wait_no_longer(self) -> bool:
        return self._every.due() or self._bad.first is not None

    def _complete(self, begun: Begun, probing: Probing, steps: int, made: int) -> str:
        """A record of what all processes found."""
        alone = self._ranks.world == 1
        with self._pace.timed():
            row, updates = begun.row | self._signs.row(), self._every.take()
            norms = unknown(probing.params, probing.heads) if begun.update is None else begun.update.norms()
            wrong = self._gathering.of_all(
                row, self._record.step, updates, norms, self._largest.of_record(), probing,
                0 if alone else self._pace.next_after(steps, made), self._recording.telling.stop,
            )  # fmt: skip
            if wrong:
                return wrong
            self._write(row, self._dated(updates), probing, steps)
        broken = self._bad.since is not None or not math.isfinite(row.get("train_loss", 0.0))
        self.broken = broken and not alone and self._bad.facts is None
        return ""

    def _write(self, row: dict[str, Any], updates: dict[str, np.ndarray], probing: Probing, steps: int) -> None:
        if math.isfinite(self.evaluation):
            row["val_loss"], self.evaluation = self.evaluation, float("nan")
        step, writer = self._record.step, probing.writer
        if writer is not None:
            write(writer, updates)
            writer.status("training", {"step": steps, "cost": self._pace.cost()})
        self._recording.write(step, row)
        if writer is not None:
            self._finite.recorded(step, row)

    def _dated(self, updates: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Updates that are about to be written: the first of them whose loss was not finite is remembered."""
        told = updates["told"] > 0
        self._bad.dated(updates["step"][told], updates["train_loss"][told])
        return updates

    @property
    def lost(self) -> list[str]:
        """Names that were logged, of which neither a record nor an update has the latest value."""
        waiting = self._recording.own.waiting.items()
        return [name for name, value in waiting if isinstance(value, np.ndarray) or name in self._every.waiting]

    def end(self, probing: Probing, steps: int, error: BaseException | None, off: str | None, stop: bool) -> None:
        """Say in the run how it ended. `off`: why the recorder is; `stop`: was the training asked to?"""
        writer = probing.writer
        assert writer is not None
        facts: dict[str, Any] = {} if error is None else {"error": f"{type(error).__name__}: {error}"}
        facts |= {"recording_stopped": off} if off else {}
        facts |= {"divergence": self._bad.facts} if self._bad.facts else {}
        status = "diverged" if self._bad.facts else "stopped" if error is not None or off or stop else "finished"
        if self._recording.writer is None:  # the first record failed
            self._recording.begin(writer, list(probing.params))
        with contextlib.ExitStack() as ending:  # each, the last first, whatever the others raise
            ending.callback(self._ranks.leave)
            ending.callback(self._recording.end, status, {**facts, "step": steps})
            if self._ranks.world == 1:  # of several processes, what has not become that of all is of none
                write(writer, self._every.take())
