"""Runs that went on from before a finding of another, as it was and with one change each: what became of it."""

from __future__ import annotations

import glob
from dataclasses import dataclass

from tracer.config.field_docs import fields_in_help
from tracer.diagnosis import examine
from tracer.diagnosis.remedies import SIGNS
from tracer.store import Run

AS_IT_WAS = "as it was"


@fields_in_help
@dataclass(frozen=True)
class Future:
    """A run that went on from before the finding."""

    run: Run
    """As it came out."""
    name: str
    """`as it was`, or that of its remedy."""
    words: str
    """What was changed."""
    named: bool
    """Did the finding's advice speak of it?"""
    since: int | None
    """The step from which the finding holds there; None where it does not."""
    also: tuple[str, ...]
    """Kinds of other findings there that are bad."""
    loss: float
    """On held-out text, at the last record that has one."""
    best: float
    """And at the best record."""

    @property
    def helped(self) -> bool:
        """Is the finding gone?"""
        return self.since is None and self.run.status == "finished"


def name_of(run: Run, kind: str, name: str) -> str:
    """The directory of one of them."""
    return f"{run.dir.name}-{kind}-{name.replace(' ', '-')}"


def made_for(run: Run, kind: str) -> list[Run]:
    """Those that were made for a kind of finding and have ended, as it was first, then in the order of `remedies`."""
    found: dict[str, Run] = {}
    for directory in run.dir.resolve().parent.glob(glob.escape(name_of(run, kind, "")) + "*"):
        try:
            one = Run(directory)
            facts = one.meta.get("remedy") or {}
        except (ValueError, OSError):  # which Runs says
            continue
        if [facts.get(name) for name in ("run", "created", "kind")] == [run.name, run.meta["created"], kind]:
            found[facts["name"]] = one
    return [found[name] for name in (AS_IT_WAS, *SIGNS) if name in found]


def judged(run: Run) -> Future:
    """What became of the finding in a run that `remedy` made."""
    facts = run.meta["remedy"]
    found = examine(run, before=False).findings
    since = next((one.step for one in found if one.kind == facts["kind"]), None)
    bad = dict.fromkeys(one.kind for one in found if one.severity == "bad" and one.kind != facts["kind"])
    losses = run.trace["val_loss"].dropna("step").values
    last, best = (float(losses[-1]), float(losses.min())) if len(losses) else (float("nan"), float("nan"))
    return Future(run, facts["name"], facts["words"], facts["named"], since, tuple(bad), last, best)
