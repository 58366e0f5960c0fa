"""Who hears of what is recorded while it is: the loop's own function, trackers, and whoever wants findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracer.store import RunWriter
from tracer.tracking import Tracking
from tracer.tracking.tracking import check, say
from tracer.watching.alerts import Alerts, OnFinding

OnRecord = Callable[[int, dict[str, float]], object]
"""Called with the step of a record and `last`, in the process that writes."""


class Telling:
    """Each record, and each kind of finding once."""

    def __init__(
        self, directory: Path, share: float, track: str | Sequence[str] | None, on_record: OnRecord | None,
        on_finding: OnFinding | None,
    ) -> None:  # fmt: skip
        self._to = (track,) if isinstance(track, str) else tuple(track or ())
        check(self._to)
        self._alerts, self._on_record = Alerts(directory, on_finding, share), on_record
        self._alerted = bool(self._to) or on_finding is not None
        self._tracking: Tracking | None = None

    @property
    def stop(self) -> bool:
        """Did `on_finding` ask for the training to stop?"""
        return self._alerts.stop

    def begin(self, writer: RunWriter) -> None:
        """The run is there: open the trackers."""
        if self._to:
            try:
                self._tracking = Tracking(self._to, writer.dir, writer.meta)
            except ValueError as error:
                say(f"manyeyes tells no tracker, recording and training go on: {error}")

    def record(self, writer: RunWriter, step: int, row: dict[str, Any], flat: dict[str, float]) -> None:
        """A row of the trace was handed to the writer; `flat` is it by readable names."""
        if self._on_record is not None:
            self._on_record(step, flat)
        if self._tracking is not None:
            self._tracking.record(step, row)
        if self._alerted and self._alerts.due():
            self._look(writer)

    def end(self, writer: RunWriter, status: str, facts: dict[str, Any]) -> None:
        """The run is about to be closed: what is found at its end is part of it."""
        try:
            if self._alerted:
                writer.status(status, facts)
                self._look(writer)
        finally:
            if self._tracking is not None:
                self._tracking.close(failed=status == "diverged" or "error" in facts)

    def _look(self, writer: RunWriter) -> None:
        writer.flush()
        writer.wait()
        for one in self._alerts.look():
            writer.finding({"step": one.step, "kind": one.kind, "severity": one.severity, "title": one.title,
                            "heads": [list(head) for head in one.heads], "evidence": one.evidence})  # fmt: skip
            if self._tracking is not None:
                self._tracking.alert(one)
