"""What would have helped: a training from before a finding, once as it was, and once with each change.

1. It begins at the nearest state that is kept before the finding; what changes the model begins at 0, of the same seed.
2. As it was comes first. Where its weights are not those of the run to the bit, or the finding does not show in it,
   nothing can be told from the others, and none is trained.
3. Each is a run of its own, judged by the same rule at the same step. What was begun is gone on with.

One seed of each: what helps here is a lead, and no law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tracer.data.own_probe import Probes
from tracer.data.own_source import Make
from tracer.diagnosis import Finding, examine
from tracer.diagnosis.futures import AS_IT_WAS, Future, judged, name_of
from tracer.diagnosis.remedies import Remedy, named, remedies
from tracer.heads.own_measures import Measures
from tracer.interventions.own_clamps import Given
from tracer.store import Run, RunWriter, open_run
from tracer.store.stretch import stretch
from tracer.tracking.scalar_functions import Scalars
from tracer.training.interrupts import one_process
from tracer.training.loop import fork, resume, train
from tracer.training.own_loss import Loss
from tracer.training.replay import compared

LONGEST = 0.1
"""Of a run that diverged, it is followed this part of its planned steps past that, 100 at least; ours."""


@dataclass(frozen=True)
class Trials:
    """From where, how far, and for what."""

    run: Run
    finding: Finding
    start: int
    until: int
    tried: tuple[Remedy, ...]

    def words(self) -> str:
        """In words, what is about to be done, and how long the run says that it takes."""
        n, kept = len(self.tried), self.start in self.run.state_steps
        begins = f"kept state of step {self.start:,}" if kept else "beginning of the run"
        text = (
            f"{self.run.name}, {self.finding.title} since step {self.finding.step:,}: from the {begins} to step "
            f"{self.until:,}, as it was and with {n} change{'s' * (n != 1)}"
        )
        each = self.run.trace["step_ms"].median().item() / 1000
        if not each > 0:
            return text
        steps = sum(self.until - self.start * one.keeps_model for one in self.tried) + self.until - self.start
        return f"{text}; {steps:,} updates, about {each * steps:,.0f} s at the run's own pace, and what recording takes"


def plan(
    parent: Run, kind: str | Finding | None = None, *, tries: Sequence[str] = (), before: int | None = None,
    until: int | None = None,
) -> Trials:  # fmt: skip
    """What `remedy` does. ValueError where there is nothing to remedy, or nothing to begin from."""
    finding = kind if isinstance(kind, Finding) else _found(parent, kind)
    last, config = min(parent.meta["step"], parent.config.steps), parent.config
    records = [int(step) for step in parent.trace["step"].values if step < finding.step]
    begin = _begin(parent)
    first = max([begin, *records]) if before is None else before
    part = stretch(parent, min(first, max(begin, last - 1)), last)
    diverged = parent.status == "diverged"
    end = min(config.steps, last + max(100, int(LONGEST * config.steps))) if diverged else last
    end = end if until is None else until
    if end <= max(part.start, finding.step if diverged else 0):
        raise ValueError(f"until={end} is before the finding of step {finding.step:,}: give a later step")
    tried = remedies(config, part.start)
    there = [one.name for one in tried]
    if unknown := [name for name in tries if name not in there]:
        raise ValueError(f"{unknown[0]!r} is no change that can be tried of {parent.name}: {', '.join(there)}")
    asked_for = tuple(one for one in tried if not tries or one.name in tries)
    return Trials(parent, finding, part.start, end, asked_for)


def _begin(run: Run) -> int:
    """The step that it was trained from."""
    return (run.meta.get("parent") or {}).get("step", 0)


def _found(run: Run, kind: str | None) -> Finding:
    """The worst of its findings, or the one of a kind."""
    found = examine(run).findings
    finding = next((one for one in found if kind in (None, one.kind)), None)
    if finding is None:
        there = ", ".join(dict.fromkeys(one.kind for one in found))
        asked = f"no {kind} was found, only {there}" if found else "nothing was found"
        raise ValueError(f"{asked} in {run.name}: there is nothing to remedy")
    return finding


def remedy(
    run: Run | str | Path, kind: str | Finding | None = None, *, tries: Sequence[str] = (), before: int | None = None,
    until: int | None = None, quiet: bool = False, progress: Callable[[Future], object] | None = None,
    measures: Measures = (), probes: Probes = None, scalars: Scalars | Sequence[Scalars] = (),
    corpus: str | Make | None = None, clamp: Given = (), loss: Loss | None = None,
) -> list[Future]:  # fmt: skip
    """Train a run of ours again from before a finding: as it was, and with each change that may help.

    Args:
        run: A run of `tracer.train`, or its name.
        kind: A finding of `tracer.diagnose`, or its kind; by default the worst.
        tries: Names of changes; by default all that change something: rate, faster, warmup, clip, decay, no-decay,
            qk-clip, sigma, dropout, and where the run lacks them scale, qk-norm, sink, soft-cap and norm, which
            begin at 0.
        before: Begin at the latest kept state at or before this step; by default at or before the last record that
            comes before the finding.
        until: The last step; by default the run's own, or where it diverged a tenth of its planned steps past that.
        progress: Called with each future when it is there.
        measures, probes, scalars, corpus, clamp, loss: Those of the run, named again, as in `tracer.fork`.

    Returns:
        The runs, as it was first: what became of the finding in each, and of the loss. Each is `RUN-KIND-NAME`, with
        what it is in run.json; those that are there already are not trained again.

    Raises:
        ValueError: Where nothing was found; where no state is kept to begin from; where training as it was does not
            give the run to the bit, or does not show the finding.
    """
    one_process("tracer remedy")
    what = plan(run if isinstance(run, Run) else open_run(run), kind, tries=tries, before=before, until=until)
    code = {"measures": measures, "probes": probes, "scalars": scalars, "corpus": corpus, "clamp": clamp, "loss": loss}
    found: list[Future] = []
    for one in (None, *what.tried):
        found.append(_future(what, one, quiet, code))
        if progress is not None:
            progress(found[-1])
        if one is None:
            _refuse_another(what, found[0])
    return found


def _future(what: Trials, one: Remedy | None, quiet: bool, code: dict[str, Any]) -> Future:
    """The run with this change, None: as it was; trained, gone on with, or there already."""
    parent = what.run
    name = AS_IT_WAS if one is None else one.name
    directory = parent.dir.resolve().parent / name_of(parent, what.finding.kind, name)
    facts = {
        "run": parent.name, "created": parent.meta["created"], "kind": what.finding.kind, "step": what.finding.step,
        "name": name, "words": "nothing changed" if one is None else one.words,
        "named": one is not None and name in named(what.finding), "start": what.start, "until": what.until,
    }  # fmt: skip
    config = replace(parent.config if one is None else one.config, run=str(directory), steps=what.until)
    there = Run(directory) if (directory / "run.json").exists() else None
    if there is None:
        keeps = one is None or one.keeps_model
        again = (
            fork(parent, what.start, config, quiet, track=(), **code) if keeps else train(config, quiet=quiet, **code)
        )
    elif there.meta.get("remedy", facts) != facts or there.config != replace(config, run=there.config.run):
        raise ValueError(f"{directory} is there, of another stretch: move that folder away, and try again")
    else:
        again = there if there.status in ("finished", "diverged") else resume(directory, quiet=quiet, **code)
    if again.status == "stopped":
        raise KeyboardInterrupt
    if again.meta.get("remedy") != facts:
        RunWriter.reopen(again).close(again.meta["status"], remedy=facts)
    return judged(Run(again.dir))


def _refuse_another(what: Trials, first: Future) -> None:
    """ValueError where the training as it was is not the run's, or shows no finding."""
    facts: dict[str, Any] = compared(first.run, what.run, what.start)
    apart = (
        None if facts["parts"] is None else f"weights part at step {facts['parts']:,}, by up to {facts['apart']:.2g}"
    )
    if apart is None and (step := _losses_part(first.run, what.run)) is not None:
        apart = f"its losses part at step {step:,}"
    if apart is not None:
        raise ValueError(
            f"as it was, {what.run.name} is not had again to the bit: {apart}. On this machine, or with this number of "
            f"threads, no change can be told from that"
        )
    if first.since is None:
        raise ValueError(
            f"as it was, from step {what.start:,} to {what.until:,}, {what.run.name} shows no {what.finding.title!r}: "
            f"the stretch is too short to tell. Begin earlier (before=) or go on longer (until=)"
        )


def _losses_part(again: Run, parent: Run) -> int | None:
    """The first step of which both recorded the loss of the batch, and not the same: known without any weights."""
    ours, theirs = (run.trace["train_loss"].dropna("step").to_series() for run in (again, parent))
    both = ours.index.intersection(theirs.index)
    differ = both[(ours[both] != theirs[both]).to_numpy()]
    return int(differ[0]) if len(differ) else None
