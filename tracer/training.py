"""The training loop, on Accelerate. One step reads: measure, backward, record, update.

Nothing random has a state: batch t, and the dropout of step t, are functions of (seed, t). So a run that was killed
goes on to the bit, and a run that diverged can be replayed under the microscope.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from tracer import data as data_module
from tracer import optim
from tracer.allocator import keep_freed_memory
from tracer.config import TrainConfig, to_dict
from tracer.diverge import GRADIENT, WEIGHT, Watch
from tracer.edits import recording
from tracer.model import Transformer
from tracer.provenance import process, provenance
from tracer.record import Recorder, record_steps, snapshot_steps
from tracer.scribe import Scribe
from tracer.store import FORMAT, Run, RunWriter, open_run, resolve


@dataclass
class Job:
    """Everything that a training process holds."""

    config: TrainConfig
    data: data_module.Data
    accelerator: Accelerator
    raw: Transformer
    model: Any
    optimizers: list[Any]
    bf16: bool


def train(config: TrainConfig, preset: str | None = None, quiet: bool = False) -> Run:
    """Train a new run and return it; a Ctrl-C stops it cleanly, and `resume` goes on from there."""
    job = prepare(config)
    directory = resolve(config.run or f"{preset or 'run'}-{config.seed}")
    if not job.accelerator.is_main_process:
        return _loop(job, None, 0, directory)
    snapshots = snapshot_steps(config, _bytes(job.raw))
    recorder = Recorder(job.raw, config.record, job.data)
    meta = {
        "format": FORMAT, "preset": preset, "config": to_dict(config), "seed": config.seed,
        "corpus": {"name": job.data.name, "hash": job.data.hash}, "d_vocab": job.data.d_vocab,
        "n_params": sum(p.numel() for p in job.raw.parameters()), "device": str(job.accelerator.device),
        "step": 0, "snapshot_steps": snapshots, **provenance(), **process(),
    }  # fmt: skip
    writer = RunWriter.create(directory, meta, job.data.tokenizer)
    writer.create_trace(len(record_steps(config, snapshots)), *recorder.layout())
    return _loop(job, Scribe(job.raw, config, job.data, writer, recorder, 0, quiet), 0, directory)


def resume(name: str | Path, steps: int | None = None, quiet: bool = False) -> Run:
    """Go on with a run where its last resume point is; `steps` makes it longer than planned."""
    run = open_run(name)
    config = run.config if steps is None else replace(run.config, steps=steps)
    start = run.resume_step()
    if run.status == "diverged":
        raise ValueError(
            f"{run.name} diverged at step {run.meta['divergence']['step']}; going on would repeat that exactly"
        )
    if run.status == "finished" and config.steps <= run.config.steps:
        raise ValueError(f"{run.name} is finished at step {run.config.steps}; `--steps N` with a larger N goes on")
    if start is not None and config.steps < start:
        raise ValueError(f"{run.name} is at step {start} already: steps={config.steps} cannot be less")
    state = run.resume_state()
    job = prepare(config)
    if job.data.hash != run.meta["corpus"]["hash"]:
        raise ValueError(
            f"the corpus {job.data.name!r} is not the one {run.name} was trained on (its hash differs), "
            f"so the run cannot go on to the bit; restore the text, or start a new run"
        )
    load_state(job, state)
    assert start is not None
    if not job.accelerator.is_main_process:
        return _loop(job, None, start, run.dir)
    recorder = Recorder(job.raw, config.record, job.data)
    snapshots = snapshot_steps(config, _bytes(job.raw))
    writer = RunWriter.reopen(run)
    assert writer.trace is not None
    was_last = run.config.steps if config.steps > run.config.steps else None  # its row, if it is there, has no update
    writer.trace.extend(len(record_steps(config, snapshots)), from_step=was_last)
    facts = {"config": to_dict(config), "snapshot_steps": snapshots, "error": None, **process()}
    writer.status("training", facts)
    return _loop(job, Scribe(job.raw, config, job.data, writer, recorder, start, quiet), start, run.dir)


def prepare(config: TrainConfig) -> Job:
    """Data, model and optimisers on their device."""
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
    raw = Transformer(replace(config.model, d_vocab=data.d_vocab), config.seed).to(accelerator.device)
    raw.tokenizer = data.tokenizer
    model = accelerator.prepare(raw)
    optimizers = [accelerator.prepare(o) for o in optim.build(raw, config.optim)]
    if config.optim.compile:
        model = torch.compile(model)
    bf16 = config.optim.precision == "bf16" or (config.optim.precision == "auto" and accelerator.device.type == "cuda")
    return Job(config, data, accelerator, raw, model, optimizers, bf16)


def forward_backward(job: Job, step: int, alone: bool = False) -> Tensor:
    """Gradients of batch `step` and its mean loss, over all micro-batches and processes.

    `alone`: this process does the whole batch on the bare model while the others wait or are gone.
    """
    config, accelerator = job.config, job.accelerator
    rank, world = (0, 1) if alone else (accelerator.process_index, accelerator.num_processes)
    model = job.raw if alone else job.model
    batch = job.data.train(step, config.optim.batch_size)[rank::world]
    if config.model.dropout:
        torch.manual_seed((config.seed << 32) + step * world + rank)
    total = torch.zeros((), device=accelerator.device)
    micros = batch.to(accelerator.device).chunk(config.optim.accumulate)
    for i, micro in enumerate(micros):
        last = i == len(micros) - 1
        with contextlib.nullcontext() if last or world == 1 else accelerator.no_sync(model):
            with torch.autocast(accelerator.device.type, torch.bfloat16, enabled=job.bf16):
                logits = model(micro[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), micro[:, 1:].flatten()) / len(micros)
            accelerator.backward(loss)
        total += loss.detach()
    return total if world == 1 else accelerator.reduce(total, "mean")  # type: ignore[return-value]


def update(job: Job, step: int) -> tuple[float, Tensor]:
    """Clip, step, clear; returns the learning rate and the factor by which gradients were scaled."""
    lr, factor = optim.set_lr(job.optimizers, job.config.optim, step), torch.ones(())
    if job.config.optim.clip is not None:
        norm = torch.as_tensor(job.accelerator.clip_grad_norm_(job.raw.parameters(), job.config.optim.clip))
        factor = (job.config.optim.clip / (norm + 1e-6)).clamp(max=1.0)
    for optimizer in job.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return lr, factor


def _loop(job: Job, scribe: Scribe | None, start: int, directory: Path) -> Run:
    """From step `start` to the end; the process without a scribe (not the main one) only trains."""
    steps, losses = job.config.steps, Losses()
    job.raw.train()
    with contextlib.ExitStack() as stack:
        if scribe:
            stack.enter_context(scribe)
        interrupted = stack.enter_context(_interrupts())
        for step in range(start, steps + 1):
            stop = _any_process(job, interrupted())
            if scribe:
                scribe.keep(step, lambda: state_of(job), force=step in (start, steps) or stop)
            if stop:
                return scribe.close("stopped") if scribe else Run(directory)
            loss = forward_backward(job, step)
            if (failed := losses.failed(step, loss, wait=step == steps)) is not None:
                if scribe:
                    scribe.writer.wait()
                    return scribe.diverged(_replay(job, directory, failed))
                return Run(directory)
            if scribe:
                scribe.measure(step, loss)
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


def _any_process(job: Job, asked: bool) -> bool:
    """Has any process been asked to stop? All must stop after the same step, or the others wait for ever."""
    if job.accelerator.num_processes == 1:
        return asked
    flag = torch.tensor(float(asked), device=job.accelerator.device)
    return bool(job.accelerator.reduce(flag, "sum") > 0)  # type: ignore[operator]


def state_of(job: Job) -> dict[str, Tensor]:
    """Weights and optimiser state as one flat dict of tensors, so that nothing needs to be pickled."""
    state = {f"model.{name}": tensor for name, tensor in job.raw.state_dict().items()}
    for i, optimizer in enumerate(job.optimizers):
        for index, slots in optimizer.state_dict()["state"].items():
            tensors = {name: value for name, value in slots.items() if isinstance(value, Tensor)}
            state |= {f"optimizer.{i}.{index}.{name}": value for name, value in tensors.items()}
    return state


def load_state(job: Job, state: dict[str, Tensor]) -> None:
    """The inverse of `state_of`."""
    job.raw.load_state_dict({n.removeprefix("model."): t for n, t in state.items() if n.startswith("model.")})
    for i, optimizer in enumerate(job.optimizers):
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            if name.startswith(f"optimizer.{i}."):
                _, _, index, slot = name.split(".", 3)
                slots.setdefault(int(index), {})[slot] = tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})


def _replay(job: Job, directory: Path, noticed: int) -> dict[str, Any]:
    """Train again from the last resume point with every tap watched, until something is not finite."""
    run, watch = Run(directory), Watch()
    start = run.resume_step()
    assert start is not None
    load_state(job, run.resume_state())
    for optimizer in job.optimizers:  # the step that failed left its gradients behind
        optimizer.zero_grad()
    for step in range(start, noticed + 1):
        with recording(*job.raw.hook_dict) as seen:
            loss = forward_backward(job, step, alone=True)
        if not watch.look(step, {**seen, "loss": loss}):
            break
        backwards = reversed(list(job.raw.named_parameters()))  # the order in which gradients are computed
        gradients = {n + GRADIENT: p.grad for n, p in backwards if p.grad is not None}
        if not watch.look(step, gradients):
            break
        update(job, step)
        if not watch.look(step, {n + WEIGHT: p for n, p in job.raw.named_parameters()}):
            break
    report = watch.report()
    report["text"] = report["text"] or f"training again from step {start} did not show where"
    return {"step": noticed, "replayed_from": start, **report}


@contextlib.contextmanager
def _interrupts() -> Iterator[Any]:
    """The first Ctrl-C or SIGTERM asks the loop to stop after its step; the second one is the usual interrupt."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, _: Any) -> None:
        asked.set()
        signal.signal(number, old[signal.Signals(number)])

    old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())
