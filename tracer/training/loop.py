"""The training loop, on Accelerate. One step reads: measure, backward, record, update.

Nothing random has a state: batch t, and the dropout of step t, are functions of (seed, t). So a run that was killed
goes on to the bit, and a run that diverged can be replayed under the microscope.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from tracer import data as data_module
from tracer.config import TrainConfig
from tracer.config.fields import to_dict
from tracer.data.counting import unigram_loss
from tracer.data.own_probe import Probes
from tracer.data.own_source import Make
from tracer.diagnosis.own_rules import Rules
from tracer.heads.own_measures import Measures
from tracer.hooks.inputs import logits_of
from tracer.huggingface.building import same_dice
from tracer.interventions import clamps
from tracer.interventions.edits import recording
from tracer.interventions.own_clamps import Given
from tracer.measures.gradients import gradients
from tracer.model import Transformer
from tracer.named_code import name_of, note_named
from tracer.store import FORMAT, Run, RunWriter, open_run, resolve
from tracer.store.labels import Labels
from tracer.store.provenance import process, provenance
from tracer.store.remote import refuse_writing
from tracer.torch_internals import uncompiled
from tracer.tracking.scalar_functions import Scalars
from tracer.tracking.telling import OnFinding, OnRecord, Telling
from tracer.training import optim
from tracer.training.clamping import named_again, try_out, with_these
from tracer.training.divergence import GRADIENT, WEIGHT, Watch
from tracer.training.extras import Extras
from tracer.training.interrupts import any_process, interrupts
from tracer.training.malloc import keep_freed_memory
from tracer.training.own_loss import Loss, LossBatch, OwnLoss
from tracer.training.probe_recorder import ProbeRecorder, record_steps, snapshot_steps, state_steps
from tracer.training.repeatable import repeatable
from tracer.training.session import TrainingSession


@dataclass
class Job:
    """Everything that a training process holds."""

    config: TrainConfig
    data: data_module.Data
    accelerator: Accelerator
    raw: Any
    """A `Transformer`, or a module of somebody's own."""
    model: Any
    optimizers: list[Any]
    bf16: bool
    loss: OwnLoss | None = None
    """What is trained on; None: the next-token loss."""
    next_token: Tensor | None = None
    """The next-token loss of the latest batch, where another is trained on."""


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
        else {f"model.{name}": tensor for name, tensor in parent.model(step).state_dict().items()}  # type: ignore[attr-defined]
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


GROUPS = ("name", "qk_lr_factor", "pos_lr_factor")
"""What an optimiser's state hangs on: its kind, and which parameters share a learning rate."""


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
    recorder = ProbeRecorder(job.raw, config.record, job.data, extras.own, extras.loss and extras.loss.row)
    meta = {
        "format": FORMAT, "preset": preset, "config": to_dict(config), "seed": config.seed, "parent": parent,
        "corpus": {"name": job.data.name, "hash": job.data.hash}, "d_vocab": job.data.d_vocab,
        "references": {"unigram": unigram_loss(job.data, config.record.val_rows), **job.data.references},
        "n_params": sum(p.numel() for p in job.raw.parameters()), "device": str(job.accelerator.device),
        "step": start, "snapshot_steps": snapshots, "state_steps": states, "track": list(telling.to), **extras.facts,
        **provenance(), **process(), **labels.facts,
    }  # fmt: skip
    if job.data.is_own:
        meta["bos"] = job.data.bos
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
    recorder = ProbeRecorder(job.raw, config.record, job.data, extras.own, extras.loss and extras.loss.row)
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


def prepare(
    config: TrainConfig, loss: OwnLoss | None = None, make: Callable[[TrainConfig], nn.Module] | None = None
) -> Job:  # fmt: skip
    """Data, model and optimisers on their device. `make`: of another model than ours, with whose size of vocabulary the
    configuration is filled in."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda, but torch sees no GPU here; use --device auto or cpu")
    keep_freed_memory()
    accelerator = Accelerator(cpu=config.device == "cpu", mixed_precision="no")  # precision is optim.precision's
    share = accelerator.num_processes * config.optim.accumulate
    if config.optim.batch_size % share:
        raise ValueError(
            f"batch_size={config.optim.batch_size} is not divisible by {accelerator.num_processes} processes x "
            f"accumulate={config.optim.accumulate}: the nearest that is, is "
            f"{max(1, round(config.optim.batch_size / share)) * share}"
        )
    data = data_module.build(config.data, config.model.n_ctx, config.seed)
    wanted = config.model.d_vocab
    if wanted is not None and wanted != data.d_vocab:
        raise ValueError(
            f"model.d_vocab={wanted} is not the tokenizer's vocabulary, {data.d_vocab}: leave it out, and set "
            f"data.vocab_size instead"
        )
    filled = replace(config.model, d_vocab=data.d_vocab)
    if make is not None:
        config = replace(config, model=filled)
    raw: Any = (Transformer(filled, config.seed) if make is None else make(config)).to(accelerator.device)
    if make is None:
        raw.tokenizer = data.tokenizer
        if config.own_clamps:
            try_out(raw, config, data.train(0, config.optim.batch_size)[:2, :-1].to(accelerator.device))
    model = accelerator.prepare(raw)
    model = uncompiled(model)  # a Trainer before us may have asked to compile
    optimizers = [accelerator.prepare(o) for o in optim.build(raw, config.optim)]
    if config.optim.compile:
        model = torch.compile(model)
    if make is not None:
        model = _logits(model)
    bf16 = config.optim.precision == "bf16" or (config.optim.precision == "auto" and accelerator.device.type == "cuda")
    return Job(config, data, accelerator, raw, model, optimizers, bf16, loss)


def _logits(model: Any) -> Callable[[Tensor], Tensor]:
    """Calls a model of somebody's own, whose output may hold more than logits."""

    def call(tokens: Tensor) -> Tensor:
        logits = logits_of(model(tokens), tokens)
        if logits is None:
            raise ValueError("the model that build= makes gives no logits when it trains, as it does in eval mode")
        return logits

    return call


IGNORED = -100
"""The target of which torch's cross-entropy takes no loss."""


def forward_backward(job: Job, step: int, alone: bool = False) -> Tensor:
    """Gradients of batch `step` and its mean loss over the targets that count, of all micro-batches and processes; or
    the loss of one's own that is trained on, with the next-token loss in `job.next_token`.

    `alone`: this process does the whole batch on the bare model while the others wait or are gone.
    """
    config, accelerator = job.config, job.accelerator
    rank, world = (0, 1) if alone else (accelerator.process_index, accelerator.num_processes)
    model = job.raw if alone else job.model
    if config.model.dropout or job.loss:
        torch.manual_seed(dropout_seed(config.seed, step, rank))
    total, next_token = torch.zeros(2, device=accelerator.device)
    micros, n_counted = _micro_batches(job, step, rank, world)
    for i, micro in enumerate(micros):
        last = i == len(micros) - 1
        with (
            repeatable(accelerator.device),
            contextlib.nullcontext() if last or world == 1 else accelerator.no_sync(model),
        ):
            trained_on, of_tokens = _losses(job, model, micro, step, n_counted, len(micros), world)
            accelerator.backward(trained_on)
        total += trained_on.detach()
        next_token += of_tokens.detach()
    if world > 1:
        total, next_token = accelerator.reduce(torch.stack([total, next_token]), "mean")
    job.next_token = next_token if job.loss else None
    return total


Micro = tuple[Tensor, Tensor]
"""Rows [batch pos+1] of a micro-batch, and the targets of a loss [batch pos], IGNORED where they do not count."""


def _micro_batches(job: Job, step: int, rank: int, world: int) -> tuple[list[Micro], int | None]:
    """What this process has of batch `step`; and how many targets count in all of it, None where all do."""
    rows = job.data.train(step, job.config.optim.batch_size)
    counted = job.data.counted(rows)
    targets = rows[:, 1:] if counted is None else rows[:, 1:].masked_fill(~counted, IGNORED)
    batch, answers = (
        part[rank::world].to(job.accelerator.device).chunk(job.config.optim.accumulate) for part in (rows, targets)
    )
    return list(zip(batch, answers, strict=True)), None if counted is None else int(counted.sum())


def _losses(
    job: Job, model: Any, micro: Micro, step: int, n_counted: int | None, parts: int, world: int
) -> tuple[Tensor, Tensor]:
    """What a micro-batch, one of `parts`, adds to the loss that is trained on, and to that of the next token."""
    rows, answer = micro
    with torch.autocast(job.accelerator.device.type, torch.bfloat16, enabled=job.bf16):
        logits = model(rows[:, :-1]).float()
    with torch.set_grad_enabled(job.loss is None):
        flat, wanted = logits.flatten(0, 1), answer.flatten()
        if n_counted is None:
            next_token = F.cross_entropy(flat, wanted) / parts
        else:  # each target alike, however many a micro-batch or a process has; gradients are means over processes
            next_token = F.cross_entropy(flat, wanted, reduction="sum") * (world / n_counted)
    if job.loss is None:
        return next_token, next_token
    batch = LossBatch(rows[:, :-1], rows[:, 1:], answer != IGNORED, step)
    return job.loss(logits, batch, n_counted or answer.numel() * parts * world, parts, world), next_token


def check_loss(job: Job, step: int) -> None:
    """ValueError, before anything is written, where a loss of one's own is none that can be trained on.

    It is tried on the batch that comes first; afterwards all is as it was.
    """
    if job.loss is None:
        return
    device = job.accelerator.device
    job.raw.train()
    _hold(job, step)
    with same_dice([device] if device.type == "cuda" else []), repeatable(device):
        rank, world = job.accelerator.process_index, job.accelerator.num_processes
        torch.manual_seed(dropout_seed(job.config.seed, step, rank))
        (first, *others), n_counted = _micro_batches(job, step, rank, world)
        loss, _ = _losses(
            job,
            job.raw if isinstance(job.raw, Transformer) else job.model,
            first,
            step,
            n_counted,
            1 + len(others),
            world,
        )
        job.loss.check(loss, dict(job.raw.named_parameters()))


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """32 bits that hang on all three: of a longer number, torch's generator on a CPU takes the last 32 bits alone."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1)[0])


def _hold(job: Job, step: int) -> None:
    """The clamps of a step, and no others, until the next."""
    if job.config.clamp:
        job.raw.clamps = clamps.edits(job.config, step)


def update(job: Job, step: int) -> tuple[float, Tensor]:
    """Clip, step, clear; returns the learning rate and the factor by which gradients were scaled."""
    lr = optim.set_lr(job.optimizers, job.config.optim, step)
    factor = torch.ones((), device=job.accelerator.device)
    if job.config.optim.clip is not None:
        norm = torch.as_tensor(job.accelerator.clip_grad_norm_(job.raw.parameters(), job.config.optim.clip))
        factor = (job.config.optim.clip / (norm + 1e-6)).clamp(max=1.0)
    for optimizer in job.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return lr, factor


def _loop(job: Job, scribe: TrainingSession | None, start: int, directory: Path) -> Run:
    """From step `start` to the end; the process without a scribe (not the main one) only trains."""
    steps, losses = job.config.steps, Losses()
    job.raw.train()
    with contextlib.ExitStack() as stack:
        if scribe:
            stack.enter_context(scribe)
        interrupted = stack.enter_context(interrupts())
        for step in range(start, steps + 1):
            stop = any_process(interrupted() or (scribe is not None and scribe.telling.stop))
            if scribe:
                scribe.keep(step, lambda: state_of(job), force=step in (start, steps) or stop)
            if stop:
                return scribe.close("stopped") if scribe else Run(directory)
            _hold(job, step)
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


class Losses:
    """Is every loss finite? A GPU is asked one step late, by a copy on its way since, so that nobody waits for it."""

    def __init__(self) -> None:
        self._copies: deque[tuple[int, Tensor, torch.cuda.Event | None]] = deque()

    def failed(self, step: int, loss: Tensor, wait: bool) -> int | None:
        """The step whose loss is known not to be finite; `wait`: there is no later call, so ask about all."""
        copied = torch.cuda.Event() if loss.device.type == "cuda" else None
        self._copies.append((step, loss.to("cpu", non_blocking=True), copied))
        if copied is not None:
            copied.record()
        while len(self._copies) > (copied is not None and not wait):
            asked, value, copied_then = self._copies.popleft()
            if copied_then is not None:
                copied_then.synchronize()
            if not math.isfinite(float(value)):
                return asked
        return None


def state_of(job: Job) -> dict[str, Tensor]:
    """Weights and optimiser state as one flat dict of tensors, so that nothing needs to be pickled."""
    state = {f"model.{name}": tensor for name, tensor in job.raw.state_dict().items()}
    for i, optimizer in enumerate(job.optimizers):
        for index, slots in optimizer.state_dict()["state"].items():
            tensors = {name: value for name, value in slots.items() if isinstance(value, Tensor)}
            state |= {f"optimizer.{i}.{index}.{name}": value for name, value in tensors.items()}
    return state


def load_state(job: Job, state: dict[str, Tensor]) -> None:
    """The inverse of `state_of`; ValueError when the state is of another model."""
    try:
        job.raw.load_state_dict({n.removeprefix("model."): t for n, t in state.items() if n.startswith("model.")})
    except RuntimeError as error:
        raise ValueError(f"the weights to go on from do not fit this model: {error}") from error
    for i, optimizer in enumerate(job.optimizers):
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            if name.startswith(f"optimizer.{i}."):
                _, _, index, slot = name.split(".", 3)
                slots.setdefault(int(index), {})[slot] = tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})


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
    for optimizer in job.optimizers:  # the step that failed left its gradients behind
        optimizer.zero_grad()
    for step in range(start, noticed + 1):
        _hold(job, step)
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
