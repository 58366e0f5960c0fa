"""Who hears of what is recorded while it is: a function of the user's, trackers, and whoever wants findings.

The same for our training loop and for a watched one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from tracer.diagnosis import Finding, OwnRule, Rule, examine
from tracer.diagnosis.own_rules import Rules, given_rules
from tracer.store import RunWriter, open_run
from tracer.tracking.tracking import Tracking, check, say

OnRecord = Callable[[int, dict[str, float]], object]
"""Called with the step of a record and its numbers by readable names, in the process that writes."""
OnFinding = Callable[[Finding], Any] | Literal["stop"]
"""Called with each finding; the training is asked to stop where it returns "stop". The word itself instead of a
function: to stop at the first finding that is bad."""
SHARE = 0.01
"""Of the time of a training that looking for findings may take."""
LOG = logging.getLogger("manyeyes")


class Telling:
    """Each record, and each kind of finding once."""

    def __init__(
        self, track: str | Sequence[str] | None = None, on_record: OnRecord | None = None,
        on_finding: OnFinding | None = None, share: float = SHARE, rules: Rules = (),
    ) -> None:  # fmt: skip
        self.to = (track,) if isinstance(track, str) else tuple(track or ())
        """Trackers."""
        check(self.to)
        if not (on_finding is None or on_finding == "stop" or callable(on_finding)):
            raise ValueError(f"on_finding={on_finding!r} is neither a function of a finding nor 'stop'")
        self._share, self._on_record, self._on_finding = share, on_record, on_finding
        self.rules = [OwnRule(kind, self._guarded(kind, row)) for kind, row in given_rules(rules).items()]
        """A user's, looked for beside ours; one that raises is left out from then on."""
        self._alerted = bool(self.to or self.rules) or on_finding is not None
        self._tracking: Tracking | None = None
        self._told: set[str] = set()
        """Kinds of findings,"""
        self._lost: set[str] = set()
        """and of a user's rules that raised."""
        self.stop = False
        """Did `on_finding` ask for the training to stop?"""
        self._looked, self._cost = time.perf_counter(), 0.0

    def _guarded(self, kind: str, row: Rule) -> Rule:
        """The rule, whose first error is a warning: nobody's training ends for it."""

        def search(meta: dict[str, Any], trace: Any) -> Iterator[Finding]:
            if kind not in self._lost and row.search is not None:
                try:
                    yield from list(row.search(meta, trace))
                except ValueError as error:  # which a user's rule makes of every error
                    self._lost.add(kind)
                    say(f"{error}: the rule {kind} is left out from here on, everything else goes on")

        return replace(row, search=search)

    def begin(self, writer: RunWriter) -> None:
        """The run is there: open the trackers. ValueError where one does not let us in."""
        if self.to:
            self._tracking = Tracking(self.to, writer.dir, writer.meta)

    def record(self, writer: RunWriter, step: int, row: dict[str, Any], flat: Callable[[], dict[str, float]]) -> None:
        """A row of the trace was handed to the writer; `flat` gives it by readable names."""
        if self._on_record is not None:
            self._on_record(step, flat())
        if self._tracking is not None:
            self._tracking.record(step, row)
        # so seldom that looking stays below its share of the time
        if self._alerted and self._cost <= self._share * (time.perf_counter() - self._looked):
            self._look(writer)

    def end(self, writer: RunWriter, status: str, facts: dict[str, Any]) -> None:
        """The run is about to be closed: what is found at its end is part of it."""
        try:
            if self._alerted:
                writer.status(writer.meta["status"], facts)  # nothing has ended before its last row is committed
                self._look(writer)
        finally:
            if self._tracking is not None:
                self._tracking.close(failed=status == "diverged" or "error" in facts)

    def _look(self, writer: RunWriter) -> None:
        """Diagnose what is on the disk, and tell what is of a kind that was not told before."""
        writer.flush()
        writer.wait()
        began, run = time.perf_counter(), open_run(writer.dir)
        now = examine(run, self.rules, before=False).findings
        found = {one.kind: one for one in reversed(now) if one.kind not in self._told}
        self._told |= found.keys()
        for one in found.values():
            LOG.warning("%s: %s, since step %d: %s", run.name, one.title, one.step, one.evidence)
            then = self._on_finding
            answer = then(one) if callable(then) else then if one.severity == "bad" else None
            self.stop |= isinstance(answer, str) and answer == "stop"
        self._looked = time.perf_counter()
        self._cost = self._looked - began
        for one in found.values():
            writer.finding({"step": one.step, "kind": one.kind, "severity": one.severity, "title": one.title,
                            "heads": [list(head) for head in one.heads], "evidence": one.evidence,
                            "source": one.source})  # fmt: skip
            if self._tracking is not None:
                self._tracking.alert(one)
