"""`diagnose` while the training goes on: each kind of finding is told once, and may stop the job."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from tracer.diagnosis import Finding, diagnose
from tracer.store import open_run

OnFinding = Callable[[Finding], Any] | Literal["stop"]
"""Called with each finding; the training is asked to stop where it returns "stop". The word itself instead of a
function: to stop at the first finding that is bad."""
LOG = logging.getLogger("manyeyes")


class Alerts:
    """The findings of a run so far."""

    def __init__(self, directory: Path, on_finding: OnFinding | None, share: float) -> None:
        if not (on_finding is None or on_finding == "stop" or callable(on_finding)):
            raise ValueError(f"on_finding={on_finding!r} is neither a function of a finding nor 'stop'")
        self._dir, self._then, self._share = directory, on_finding, share
        self.found: list[Finding] = []
        """As of the last look, each kind as it was first told."""
        self.stop = False
        self._looked, self._cost = time.perf_counter(), 0.0

    def due(self) -> bool:
        """So seldom that looking stays below its share of the time."""
        return self._cost <= self._share * (time.perf_counter() - self._looked)

    def look(self) -> list[Finding]:
        """Diagnose what is on the disk; the findings of kinds that were not told before."""
        began = time.perf_counter()
        kinds = {one.kind for one in self.found}
        new = list({one.kind: one for one in reversed(diagnose(open_run(self._dir))) if one.kind not in kinds}.values())
        self.found += new
        for one in new:
            LOG.warning("%s: %s, since step %d: %s", self._dir.name, one.title, one.step, one.evidence)
            answer = self._then(one) if callable(self._then) else self._then if one.severity == "bad" else None
            self.stop |= isinstance(answer, str) and answer == "stop"
        self._looked = time.perf_counter()
        self._cost = self._looked - began
        return new
