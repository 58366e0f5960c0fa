"""A stretch of a training again, with every step recorded, from a kept state, and compared with what the run kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from tracer.config import TrainConfig
from tracer.data.own_probe import Probes
from tracer.data.own_source import Make
from tracer.heads.own_measures import Measures
from tracer.interventions.own_clamps import Given
from tracer.store import Run, RunWriter, open_run
from tracer.store.stretch import Stretch, stretch
from tracer.tracking.scalar_functions import Scalars
from tracer.training.loop import fork
from tracer.training.own_loss import Loss
from tracer.training.progress import Screen


def replay(
    run: Run | str | Path, first: int, last: int, every: int = 1, name: str | None = None, quiet: bool = False,
    overwrite: bool = False, *, snapshot_every: int | None = None, measures: Measures = (), probes: Probes = None,
    scalars: Scalars | Sequence[Scalars] = (), corpus: str | Make | None = None, clamp: Given = (),
    loss: Loss | None = None,
) -> Run:  # fmt: skip
    """Train steps `first` to `last` of a run of ours again and record every one, in a run of its own.

    Training goes on from the nearest state that the run keeps at or before `first` (`run.state_steps`), else from its
    beginning, to the first snapshot at or after `last`; there and at each snapshot between, the weights are compared
    with the run's. `replayed.meta["replay"]` says it: `compared` (steps), `parts` (the first step whose weights
    differ, None: they are equal to the bit) and `apart` (by how much at most, there). They part where another machine,
    device or number of threads adds numbers in another order.

    Args:
        run: A run of `tracer.train`, or its name.
        first, last: Steps.
        every: Record each step whose number it divides, and each snapshot.
        name: Of the new run; by default the run's with the steps.
        snapshot_every: Keep weights and patterns every so many steps; by default as the run does.
        measures, probes, scalars, corpus, clamp, loss: As in `tracer.fork`: those of the run are named again, and
            more may be given, which are then had at every step.

    Raises:
        ValueError: For steps that were not trained, or cannot be had again; as `tracer.fork` does.
    """
    parent = run if isinstance(run, Run) else open_run(run)
    if every < 1 or (snapshot_every is not None and snapshot_every < 1):
        raise ValueError("every and snapshot_every count steps: give 1 or more")
    part = stretch(parent, first, last)
    Screen(quiet=quiet, highlight=False).print(part.cost(every), markup=False, soft_wrap=True)
    again = fork(
        parent, part.start, _recorded(parent.config, part, every, name, snapshot_every), quiet, overwrite, track=(),
        measures=measures, probes=probes, scalars=scalars, corpus=corpus, clamp=clamp, loss=loss,
    )  # fmt: skip
    if not PartialState().is_main_process:
        return again
    facts = {
        "run": parent.name, "created": parent.meta["created"], "first": first, "last": last, "every": every,
        **compared(again, parent, part.start),
    }  # fmt: skip
    facts["diverged"] = (parent.meta.get("divergence") or {}).get("step")
    writer = RunWriter.reopen(again)
    writer.close(again.meta["status"], replay=facts)
    again = Run(again.dir)
    Screen(quiet=quiet, highlight=False).print(said(again), markup=False, soft_wrap=True)
    return again


def said(run: Run) -> str:
    """In words, whether the weights of a replay are those of its run."""
    facts = run.meta["replay"]
    step = (run.meta.get("divergence") or {}).get("step")
    if step is not None and step == facts.get("diverged"):
        return f"diverged at step {step:,}, as {facts['run']} did"
    if not facts["compared"]:
        return f"{facts['run']} kept no weights in this stretch to compare with"
    if facts["parts"] is None:
        return f"equal to {facts['run']} to the bit at step {', '.join(f'{one:,}' for one in facts['compared'])}"
    return (
        f"parts from {facts['run']} at step {facts['parts']:,}, where weights are up to {facts['apart']:.2g} apart: "
        f"another machine, device or number of threads adds in another order"
    )


def compared(again: Run, parent: Run, start: int) -> dict[str, Any]:
    """Weights of two runs at the snapshots after `start` that both keep, byte by byte; `apart` is of finite ones."""
    steps = [step for step in again.steps if step > start and step in parent.steps]
    for step in steps:
        ours, theirs = (run.model(step, clamps=False).state_dict() for run in (again, parent))  # pyrefly: ignore[missing-attribute]
        pairs = [(ours[name], theirs[name]) for name in theirs]
        if any((a.view(torch.uint8) != b.view(torch.uint8)).any() for a, b in pairs):
            gaps = torch.cat([(a.double() - b.double()).abs().flatten() for a, b in pairs])
            return {"compared": steps, "parts": step, "apart": float(gaps.nan_to_num(0, 0).max())}
    return {"compared": steps, "parts": None, "apart": 0.0}


def _recorded(
    config: TrainConfig, part: Stretch, every: int, name: str | None, snapshot_every: int | None
) -> TrainConfig:  # fmt: skip
    kept = replace(
        config.record, every=every, begin=part.first, state_every=0,
        snapshot_every=snapshot_every or config.record.snapshot_every,
    )  # fmt: skip
    return replace(config, record=kept, steps=part.stop, run=name or f"{part.run.name}-{part.first}-{part.last}")
