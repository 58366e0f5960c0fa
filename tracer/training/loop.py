"""The training loop, on Accelerate. One step reads: measure, backward, record, update.

Nothing random has a state: batch t, and the dropout of step t, are functions of (seed, t). So a run that was killed
goes on to the bit, and a run that diverged can be replayed under the microscope.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from tracer.config import TrainConfig
from tracer.config.fields import to_dict
from tracer.data.counting import unigram_loss
from tracer.data.own_probe import Probes
from tracer.data.own_source import Make
from tracer.diagnosis.growth import BEFORE
from tracer.diagnosis.own_rules import Rules
from tracer.heads.own_measures import Measures
from tracer.interventions.edits import recording
from tracer.interventions.own_clamps import Given
from tracer.measures.gradients import gradients
from tracer.named_code import name_of, note_named
from tracer.store import FORMAT, Run, RunWriter, open_run, resolve
from tracer.store.copies import refuse_writing
from tracer.store.labels import Labels
from tracer.store.provenance import process, provenance
from tracer.tracking.scalar_functions import Scalars
from tracer.tracking.telling import OnFinding, OnRecord, Telling
from tracer.training.clamping import named_again, with_these
from tracer.training.divergence import GRADIENT, WEIGHT, Watch
from tracer.training.extras import Extras
from tracer.training.interrupts import any_process, interrupts
from tracer.training.job import Job, Losses, check_loss, forward_backward, hold, load_state, prepare, state_of, update
from tracer.training.own_loss import Loss
from tracer.training.probe_recorder import ProbeRecorder, record_steps, snapshot_steps, state_steps
from tracer.training.session import TrainingSession


def train(
    config: TrainConfig, preset: str | None = None, quiet: bool = False, track: str | Sequence[str] = (),
    overwrite: bool = False, *, on_record: OnRecord | None = None, on_finding: OnFinding | None = None,
    measures: Measures = (), probes: Probes = None, scalars: Scalars | Sequence[Scalars] = (),
    settings: Mapping[str, Any] | None = None, note: str = "", tags: Sequence[str] = (),
    corpus: str | Make | None = None, rules: Rules = (), clamp: Given = (), loss: Loss | None = None,
) -> Run:  # fmt: skip
    """Train our model, in a new run; see `tracer.train`."""
    config = with_these(on_corpus(config, corpus), clamp)
    telling, extras = Telling(track, on_record, on_finding, rules=rules), Extras.given(measures, probes, scalars, loss)
    labels = Labels.of(settings, note, tags)
    directory = resolve(config.run or f"{preset or 'run'}-{config.seed}")
    return _begin(prepare(config, extras.loss), directory, preset, 0, None, quiet, overwrite, telling, extras, labels)


def fork(
    run: Run | str | Path, step: int, config: TrainConfig | None = None, quiet: bool = False, overwrite: bool = False,
    track: str | Sequence[str] | None = None, *, on_record: OnRecord | None = None,
    on_finding: OnFinding | None = None, measures: Measures = (), probes: Probes = None,
    scalars: Scalars | Sequence[Scalars] = (), settings: Mapping[str, Any] | None = None, note: str = "",
    tags: Sequence[str] = (), corpus: str | Make | None = None, rules: Rules = (), clamp: Given = (),
    loss: Loss | None = None,
) -> Run:  # fmt: skip
    """Train a new run from the weights that another had after `step` updates, on the batches that come next there.

    `config` (default: the parent's) may change everything but the model and its tokens. The optimiser goes on, too,
    where the parent keeps its state of `step` (`run.state_steps`) and it is the same one: with nothing changed, the new
    run is the parent to the bit. Else it starts fresh. run.json says which.
    `track`, `on_record`, `on_finding`, `measures`, `probes`, `scalars`, `settings`, `note`, `tags`, `corpus`, `rules`,
    `clamp`: as in `train`; `track` is the parent's, unless told. The parent's code is named again: it is never taken
    from a run directory. `loss` may be another than the parent's; where that trained on one of its own, "next-token"
    goes on without it.
    """
    labels, extras = Labels.of(settings, note, tags), Extras.given(measures, probes, scalars, loss)
    parent = run if isinstance(run, Run) else open_run(run)
    theirs = parent.config
    extras.check(parent, more=True)
    telling = Telling(parent.meta.get("track", ()) if track is None else track, on_record, on_finding, rules=rules)
    config = with_these(on_corpus(replace(theirs, run=None) if config is None else config, corpus), clamp)
    _refuse_another_model(parent.name, theirs, config)
    if config.steps <= step:
        raise ValueError(f"steps={config.steps} leaves nothing to train after step {step}: give a larger number")
    goes_on = step in parent.state_steps and all(
        getattr(theirs.optim, name) == getattr(config.optim, name) for name in GROUPS
    )
    state = (
        parent.state(step)
        if goes_on
        else {f"model.{name}": tensor for name, tensor in parent.model(step).state_dict().items()}  # pyrefly: ignore[missing-attribute]
    )
    job = prepare(config, extras.loss)
    if job.data.tokenizer.to_str() != parent.tokenizer.to_str():
        raise ValueError(
            f"the tokens of data.corpus={config.data.corpus!r} are not those that {parent.name} knows: a fork can "
            f"change what is mixed in (data.mix, data.mix_share), not the tokenizer"
        )
    load_state(job, state)
    facts = {"run": parent.name, "step": step, "optimizer": "continued" if goes_on else "fresh"}
    directory = resolve(config.run or f"{parent.name}-from-{step}")
    return _begin(job, directory, parent.meta["preset"], step, facts, quiet, overwrite, telling, extras, labels)


GROUPS = ("name", "qk_lr_factor", "pos_lr_factor", "reparam")
"""What an optimiser's state hangs on: its kind, its parameters, and which of them share a learning rate."""


def _refuse_another_model(name: str, theirs: TrainConfig, ours: TrainConfig) -> None:
    free = {"dropout": ours.model.dropout, "init": ours.model.init}
    before, now = to_dict(replace(theirs.model, **free)), to_dict(ours.model)
    if changed := [field for field in now if now[field] != before[field]]:
        differences = ", ".join(f"model.{field}={now[field]} (there {before[field]})" for field in changed)
        raise ValueError(f"a fork keeps the model of {name}; this one differs: {differences}")


def _begin(
    job: Job, directory: Path, preset: str | None, start: int, parent: dict[str, Any] | None, quiet: bool,
    overwrite: bool, telling: Telling, extras: Extras, labels: Labels,
) -> Run:  # fmt: skip
    """Lay out a new run directory, and train from `start`."""
    check_loss(job, start)
    if not job.accelerator.is_main_process:
        return _loop(job, None, start, directory)
    config = job.config
    snapshots, states, n_records = _plan(job, start)
    recorder = ProbeRecorder(job.raw, config.record, job.data, extras.own, extras.loss.row if extras.loss else None)
    meta = {
        "format": FORMAT, "kind": "trained", "preset": preset, "config": to_dict(config), "seed": config.seed,
        "parent": parent, "corpus": {"name": job.data.name, "hash": job.data.hash}, "d_vocab": job.data.d_vocab,
        "bos": job.data.bos if job.data.is_own else 0,
        "references": {"unigram": unigram_loss(job.data, config.record.val_rows), **job.data.references},
        "n_params": sum(p.numel() for p in job.raw.parameters()), "device": str(job.accelerator.device),
        "step": start, "snapshot_steps": snapshots, "state_steps": states, "track": list(telling.to), **extras.facts,
        **provenance(), **process(), **labels.facts,
    }  # fmt: skip
    writer = RunWriter.create(directory, meta, job.data.tokenizer, overwrite)
    with writer.abandoned_on_error():
        labels.write_note(writer.dir)
        writer.create_trace(n_records, *recorder.layout())
        session = TrainingSession(job.raw, config, job.data, writer, recorder, start, quiet, telling, extras.functions)
    return _loop(job, session, start, directory)


def _plan(job: Job, first: int) -> tuple[list[int], list[int], int]:
    """The steps of a run's snapshots, those of its states, and how many rows its trace will have; a fork begins at its
    `first` step."""
    states = state_steps(job.config, _bytes(job.raw), first)
    snapshots = sorted({first, *(s for s in snapshot_steps(job.config, _bytes(job.raw)) if s >= first)})
    return snapshots, states, sum(step >= first for step in record_steps(job.config, snapshots))


def resume(
    name: str | Path, steps: int | None = None, quiet: bool = False, *, on_record: OnRecord | None = None,
    on_finding: OnFinding | None = None, measures: Measures = (), probes: Probes = None,
    scalars: Scalars | Sequence[Scalars] = (), corpus: str | Make | None = None, rules: Rules = (), clamp: Given = (),
    loss: Loss | None = None,
) -> Run:  # fmt: skip
    """Go on with a run where its last resume point is; `steps` makes it longer than planned. Its trackers are told on;
    `on_record`, `on_finding`, `rules`: as in `train`. `measures`, `probes`, `scalars`, `corpus`, `clamp`, `loss`: those
    that the run was begun with, named again."""
    extras = Extras.given(measures, probes, scalars, loss)
    refuse_writing(name)
    run = open_run(name)
    telling = Telling(run.meta.get("track", ()), on_record, on_finding, rules=rules)
    config = run.config if steps is None else replace(run.config, steps=steps)
    code = [config.data.corpus] if config.data.is_own else []
    given = [] if corpus is None or not code and corpus == config.data.corpus else [name_of(corpus)]
    extras.check(run, (code, given))
    named_again(run.name, config, clamp)
    config = on_corpus(config, corpus)
    start = run.resume_step()
    if run.status == "diverged":
        at = (run.meta.get("divergence") or run.meta)["step"]
        raise ValueError(f"{run.name} diverged at step {at}; going on would repeat that exactly")
    if run.status == "finished" and config.steps <= run.config.steps:
        raise ValueError(f"{run.name} is finished at step {run.config.steps}; `--steps N` with a larger N goes on")
    if start is not None and config.steps < start:
        raise ValueError(f"{run.name} is at step {start} already: steps={config.steps} cannot be less")
    state = run.resume_state()
    job = prepare(config, extras.loss)
    if job.data.hash != run.corpus_hash:
        raise ValueError(
            f"the corpus {job.data.name!r} is not the one {run.name} was trained on (its hash differs), "
            f"so the run cannot go on to the bit; restore the text, or start a new run"
        )
    load_state(job, state)
    assert start is not None
    if not job.accelerator.is_main_process:
        return _loop(job, None, start, run.dir)
    recorder = ProbeRecorder(job.raw, config.record, job.data, extras.own, extras.loss.row if extras.loss else None)
    snapshots, states, n_records = _plan(job, (run.meta.get("parent") or {}).get("step", 0))
    writer = RunWriter.reopen(run)
    with writer.abandoned_on_error():
        assert writer.trace is not None
        writer.status("training")  # before rows are taken back: killed in between, the run is interrupted, none is gone
        writer.wait()
        writer.take_back_findings(start)
        states = sorted({*writer.take_back_states(start), *(step for step in states if step >= start)})
        writer.trace.add(recorder.layout()[0])
        longer = config.steps > run.config.steps
        writer.trace.extend(n_records, from_step=run.config.steps if longer else None)  # the last row has no update
        facts = {
            "config": to_dict(config), "snapshot_steps": snapshots, "state_steps": states, "error": None, **process(),
        }  # fmt: skip
        writer.status("training", facts)
        session = TrainingSession(job.raw, config, job.data, writer, recorder, start, quiet, telling, extras.functions)
    return _loop(job, session, start, run.dir)


def on_corpus(config: TrainConfig, corpus: str | Make | None) -> TrainConfig:
    """The configuration with a corpus that a person names in place of its own."""
    if corpus is None:
        return config
    config = replace(config, data=replace(config.data, corpus=name_of(corpus)))
    if config.data.is_own:
        note_named(corpus, "data.corpus")
    return config


def _loop(job: Job, scribe: TrainingSession | None, start: int, directory: Path) -> Run:
    """From step `start` to the end; the process without a scribe (not the main one) only trains."""
    steps, losses = job.config.steps, Losses()
    job.raw.train()
    with contextlib.ExitStack() as stack:
        if scribe:
            stack.enter_context(scribe)
        interrupted = stack.enter_context(interrupts())
        for step in range(start, steps + 1):
            stop = any_process(interrupted() or (scribe is not None and scribe.recording.telling.stop))
            if scribe:
                scribe.keep(step, lambda: state_of(job), force=step in (start, steps) or stop)
            if stop:
                return scribe.close("stopped") if scribe else Run(directory)
            hold(job, step)
            loss = forward_backward(job, step)
            if (failed := losses.failed(step, loss, wait=step == steps)) is not None:
                if scribe:
                    scribe.writer.wait()
                    return scribe.diverged(_replay(job, directory, failed))
                return Run(directory)
            if scribe:
                scribe.measure(step, loss, job.next_token)
            if step < steps:
                lr, clip_factor = update(job, step)
                if scribe:
                    scribe.write(step, lr, clip_factor)
        if scribe:
            scribe.write(steps, None, None)
            return scribe.close("finished")
    return Run(directory)


def _replay(job: Job, directory: Path, noticed: int) -> dict[str, Any]:
    """Train again from the last resume point with every tap watched, until something is not finite.

    Who looks at scores makes the explicit path run. What that path can't show is looked for in the fused kernel, whose
    backward pass alone overflows at scores that float32's log-sum-exp no longer resolves.
    """
    start = Run(directory).resume_step()
    assert start is not None
    watch, fused = _watched_again(job, directory, start, noticed, list(job.raw.hook_dict)), False
    if watch.non_finite is None:
        taps = [name for name in job.raw.hook_dict if not name.endswith(("hook_attn_scores", "hook_pattern"))]
        again = _watched_again(job, directory, start, noticed, taps)
        watch.non_finite, fused = again.non_finite, again.non_finite is not None
    report = watch.report()
    report["text"] = report["text"] or f"training again from step {start} did not show where"
    return {"step": noticed, "replayed_from": start, "fused": fused, **report}


def _watched_again(job: Job, directory: Path, start: int, noticed: int, taps: list[str]) -> Watch:
    run, watch = Run(directory), Watch()
    load_state(job, run.resume_state())
    job.raw.zero_grad()  # the step that failed left its gradients behind
    if not watch.look(start, {n + BEFORE: p for n, p in job.raw.named_parameters()}):
        return watch
    for step in range(start, noticed + 1):
        hold(job, step)
        with recording(*taps) as seen:
            loss = forward_backward(job, step, alone=True)
        if not watch.look(step, {**seen, "loss": loss}):
            break
        backwards = dict(reversed(list(job.raw.named_parameters())))  # the order in which gradients are computed
        if not watch.look(step, {n + GRADIENT: gradient for n, gradient in gradients(backwards).items()}):
            break
        update(job, step)
        if not watch.look(step, {n + WEIGHT: p for n, p in job.raw.named_parameters()}):
            break
    return watch


def _bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())
