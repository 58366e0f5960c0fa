"""A model of one's own in our loop: our data, optimiser, schedule and seeds, recorded as `tracer.watch` records.

`make(config)` builds it, `config.model.d_vocab` being that of the data; it takes tokens [batch pos] and gives logits
[batch pos d_vocab], or an output that has them. run.json says what it was called with, so that who names it again has
the model of any snapshot. No state of an optimiser is kept, so such a run is neither gone on with nor forked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tracer.config import TrainConfig
from tracer.config.fields import to_dict
from tracer.data import probes
from tracer.data.counting import unigram_loss
from tracer.hooks.inputs import logits_of
from tracer.huggingface.building import made
from tracer.named_code import kind_of, name_of
from tracer.store import Run, unused
from tracer.store.housekeeping import discard, remove, restore
from tracer.tracking.scalar_functions import as_it_is
from tracer.training.interrupts import interrupts
from tracer.training.job import Job, Losses, check_loss, dropout_seed, forward_backward, prepare, update
from tracer.training.own_loss import given_loss
from tracer.training.probe_recorder import record_steps
from tracer.training.progress import Terminal, perplexity
from tracer.watching.recorder import LoopRecorder

Make = Callable[[TrainConfig], nn.Module]


def train_own(
    config: TrainConfig, build: str | Make, directory: Path, preset: str | None, quiet: bool, overwrite: bool,
    loss: Any, **options: Any,
) -> Run:  # fmt: skip
    """Train the model that `build` makes, in a new run; `options` are those of the recorder.

    ValueError, before anything is written, for a model that cannot be trained so, and for what only ours can do.
    """
    name = name_of(build)
    _refuse_what_only_ours_can(config)
    trained_on = given_loss(loss)
    job = prepare(config, trained_on, lambda filled: _made(name, build, filled))
    if job.accelerator.num_processes > 1:
        raise ValueError(f"build={name}: a model of your own is trained in one process, not in several")
    config = job.config
    rows = job.data.val(config.record.val_rows)
    _check(name, job, rows)
    check_loss(job, 0)
    held = _taken(directory, overwrite)
    facts = {
        "built_with": to_dict(config), "seed": config.seed, "preset": preset, "steps": config.steps,
        "batch_tokens": config.optim.batch_size * config.model.n_ctx,
        "corpus": {"name": job.data.name, "hash": job.data.hash},
        "references": {"unigram": unigram_loss(job.data, config.record.val_rows), **job.data.references},
        **({} if trained_on is None else {"loss": trained_on.name}),
    }  # fmt: skip
    try:
        recorder = LoopRecorder(
            job.raw, directory.absolute(), tokenizer=job.data.tokenizer, every=config.record.every, build=name,
            snapshot_mb=config.record.snapshot_mb, facts=facts, **options,
        )  # fmt: skip
    except BaseException:
        if held is not None:
            restore(held)
        raise
    if held is not None:
        discard(held)
    terminal = Terminal(config.steps, 0, quiet=quiet)
    with terminal, recorder:
        n_params = sum(p.numel() for p in job.raw.parameters())
        terminal.say(f"{directory.name}: {name}, {n_params:,} parameters on {job.accelerator.device}, into {directory}")
        _loop(job, recorder, rows, terminal)
    if recorder.off is not None and not (run := directory / "run.json").exists():
        raise ValueError(f"build={name}: nothing could be recorded: {recorder.off}")
    run = Run(directory)
    terminal.say(f"{run.status} at step {recorder.steps}")
    return run


def _refuse_what_only_ours_can(config: TrainConfig) -> None:
    """In words, settings that go by names or taps of our own model."""
    optim = config.optim
    for said, instead in (
        (config.clamp and f"clamp={', '.join(config.clamp)}", "build edits into the model"),
        (optim.compile and "optim.compile=True", "compile parts of the model where it is built"),
        (optim.name == "muon" and "optim.name=muon", "adamw or sgd"),
        (optim.qk_lr_factor != 1 and f"optim.qk_lr_factor={optim.qk_lr_factor}", "leave it out"),
        (optim.pos_lr_factor != 1 and f"optim.pos_lr_factor={optim.pos_lr_factor}", "leave it out"),
    ):  # fmt: skip
        if said:
            raise ValueError(f"{said} goes by names that only our own model has, and build= names another: {instead}")


def _made(name: str, build: str | Make, config: TrainConfig) -> nn.Module:
    """A new model; torch's dice are those of the seed."""
    model = made(build, config, seed=config.seed)
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(f"build={name} returned a model without a parameter that asks for a gradient")
    return model


def _check(name: str, job: Job, rows: Tensor) -> None:
    """Does it give logits for tokens of this data, in rows of n_ctx?"""
    tokens = rows[:2, :-1].to(job.accelerator.device)
    wanted = [*tokens.shape, job.data.d_vocab]
    try:
        with as_it_is(job.raw):
            output = job.raw(tokens)
    except Exception as error:  # somebody's code, which raises whatever it runs into
        raise ValueError(
            f"build={name}: called with tokens {list(tokens.shape)} the model raised {type(error).__name__}: {error}"
        ) from error
    logits = logits_of(output, tokens)
    if logits is None or list(logits.shape) != wanted:
        found = kind_of(output) if logits is None else f"logits {list(logits.shape)}"
        raise ValueError(
            f"build={name}: called with tokens {list(tokens.shape)} the model must give logits [batch pos d_vocab] = "
            f"{wanted}, or an output that has them, not {found}; d_vocab is config.model.d_vocab"
        )


def _taken(directory: Path, overwrite: bool) -> Path | None:
    """Where the run went that was there, if it is to be replaced; ValueError for a directory that holds anything."""
    held = remove(Run(directory)) if overwrite and (directory / "run.json").exists() else None
    if unused(directory) != directory:
        raise ValueError(
            f"{directory} already holds a run or other files; choose another name with --run, or replace a run with "
            f"--overwrite"
        )
    return held


def _loop(job: Job, recorder: LoopRecorder, rows: Tensor, terminal: Terminal) -> None:
    """Each update, with the held-out loss at each record; ends where the recorder does, by whatever cause."""
    config, losses = job.config, Losses()
    due = set(record_steps(config, []))
    began, held_out = time.perf_counter(), float("nan")
    job.raw.train()
    with interrupts() as interrupted:
        for step in range(config.steps + 1):
            if step in due:
                held_out = _held_out(job, rows)
                recorder.evaluated(held_out)
            if step == config.steps:
                return
            torch.manual_seed(dropout_seed(config.seed, step, 0))
            loss = forward_backward(job, step)
            update(job, step)
            if job.loss is not None:
                recorder.log({job.loss.variable: loss})
            recorder.step(loss if job.next_token is None else job.next_token)
            broken = losses.failed(step, loss, wait=True) is not None
            next_token = float(loss if job.next_token is None else job.next_token)
            if step % config.record.log_every == 0:
                _log(terminal, config, step, next_token, held_out, began)
            terminal.update(step + 1, loss=f"{next_token:.3f}")
            if interrupted():
                recorder.close(InterruptedError("it was told to stop"))
                return
            if broken or recorder.off is not None or recorder.should_stop:
                return


def _log(terminal: Terminal, config: TrainConfig, step: int, loss: float, held_out: float, began: float) -> None:
    tokens = step * config.optim.batch_size * config.model.n_ctx
    terminal.say(
        f"batch {step}/{config.steps}  {tokens:,} tokens  {time.perf_counter() - began:.0f} s  train loss {loss:.3f} "
        f"(ppl {perplexity(loss):.1f})  held-out {held_out:.3f} (ppl {perplexity(held_out):.1f})"
    )


def _held_out(job: Job, rows: Tensor) -> float:
    """Mean next-token loss of the held-out targets that count, in eval mode; random states stay as they were."""
    device, counted = job.accelerator.device, job.data.counted(rows)
    with as_it_is(job.raw):
        found = [probes.per_token_loss(job.model(part[:, :-1]), part) for part in rows.to(device).split(8)]
    return float(probes.mean_loss(torch.cat(found), None if counted is None else counted.to(device)))
