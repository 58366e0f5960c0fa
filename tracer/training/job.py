"""One training in this process: its data, model and optimisers, and one update of it.

Nothing random has a state: batch t, and the dropout of step t, are functions of (seed, t).
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from tracer import data as data_module
from tracer.config import TrainConfig
from tracer.hooks.inputs import logits_of
from tracer.huggingface.building import same_dice
from tracer.interventions import clamps
from tracer.model import Transformer
from tracer.torch_internals import uncompiled
from tracer.training import optim, qk_clip
from tracer.training.clamping import try_out
from tracer.training.malloc import keep_freed_memory
from tracer.training.own_loss import LossBatch, OwnLoss
from tracer.training.repeatable import repeatable
from tracer.training.sigma_reparam import SigmaReparam

IGNORED = -100
"""The target of which torch's cross-entropy takes no loss."""
Micro = tuple[Tensor, Tensor]
"""Rows [batch pos+1] of a micro-batch, and the targets of a loss [batch pos], IGNORED where they do not count."""


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
    largest: Tensor | None = None
    """[layer head]: the largest attention logit of the latest batch, where `optim.qk_clip` asks for it."""
    reparam: SigmaReparam | None = None
    """What the model's matrices are made of, where `optim.reparam` asks for it."""
    left_out: Mapping[int, list[int]] = field(default_factory=dict)
    """Rows of a batch, by step, that the loss leaves out; its mean keeps its denominator."""


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
    if make is not None and config.optim.qk_clip is not None:
        raise ValueError(
            "optim.qk_clip needs heads whose W_Q and W_K are known, and this model is your own: clip them after each "
            "update (docs/recording.md)"
        )
    if make is not None and config.optim.reparam != "none":
        raise ValueError(
            f"optim.reparam={config.optim.reparam} is of the matrices of our blocks, and this model is your own: put "
            f"it into your modules (torch.nn.utils.parametrizations)"
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
    reparam = SigmaReparam(raw) if config.optim.reparam == "sigma" else None
    if reparam is not None:
        reparam.normalise()
    optimizers = [accelerator.prepare(o) for o in optim.build(raw, config.optim, reparam)]
    if config.optim.compile:
        model = torch.compile(model)
    if make is not None:
        model = _logits(model)
    bf16 = config.optim.precision == "bf16" or (config.optim.precision == "auto" and accelerator.device.type == "cuda")
    return Job(config, data, accelerator, raw, model, optimizers, bf16, loss, reparam=reparam)


def _logits(model: Any) -> Callable[[Tensor], Tensor]:
    """Calls a model of somebody's own, whose output may hold more than logits."""

    def call(tokens: Tensor) -> Tensor:
        logits = logits_of(model(tokens), tokens)
        if logits is None:
            raise ValueError("the model that build= makes gives no logits when it trains, as it does in eval mode")
        return logits

    return call


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
    micros, n_counted = micro_batches(job, step, rank, world)
    logits: list[Tensor] = []
    for i, micro in enumerate(micros):
        last = i == len(micros) - 1
        with (
            repeatable(accelerator.device),
            contextlib.nullcontext() if last or world == 1 else accelerator.no_sync(model),
        ):
            with qk_clip.largest_logits(config, logits):
                trained_on, of_tokens = _losses(job, model, micro, step, n_counted, len(micros), world)
            accelerator.backward(trained_on)
        total += trained_on.detach()
        next_token += of_tokens.detach()
    if world > 1:
        total, next_token = accelerator.reduce(torch.stack([total, next_token]), "mean")
    job.next_token = next_token if job.loss else None
    job.largest = qk_clip.over_all(logits, accelerator if world > 1 else None)
    return total


def micro_batches(job: Job, step: int, rank: int, world: int) -> tuple[list[Micro], int | None]:
    """What this process has of batch `step`; and how many targets count in all of it, None where all do."""
    rows = job.data.train(step, job.config.optim.batch_size)
    counted = job.data.counted(rows)
    targets = rows[:, 1:] if counted is None else rows[:, 1:].masked_fill(~counted, IGNORED)
    n_counted = None if counted is None else int(counted.sum())
    if left := job.left_out.get(step):
        n_counted = targets.numel() if n_counted is None else n_counted
        targets = targets.clone()
        targets[left] = IGNORED
    batch, answers = (
        part[rank::world].to(job.accelerator.device).chunk(job.config.optim.accumulate) for part in (rows, targets)
    )
    return list(zip(batch, answers, strict=True)), n_counted


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
    hold(job, step)
    with same_dice([device] if device.type == "cuda" else []), repeatable(device):
        rank, world = job.accelerator.process_index, job.accelerator.num_processes
        torch.manual_seed(dropout_seed(job.config.seed, step, rank))
        (first, *others), n_counted = micro_batches(job, step, rank, world)
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


def hold(job: Job, step: int) -> None:
    """The clamps of a step, and no others, until the next."""
    if job.config.clamp:
        job.raw.clamps = clamps.edits(job.config, step)


def update(job: Job, step: int) -> tuple[float, Tensor]:
    """Clip gradients, step, clip attention logits, clear; returns the learning rate and the factor of gradients."""
    lr = optim.set_lr(job.optimizers, job.config.optim, step)
    factor = torch.ones((), device=job.accelerator.device)
    if job.config.optim.clip is not None:
        norm = torch.as_tensor(job.accelerator.clip_grad_norm_(job.raw.parameters(), job.config.optim.clip))
        factor = (job.config.optim.clip / (norm + 1e-6)).clamp(max=1.0)
    if job.reparam is not None:
        job.reparam.pull_back()
    for optimizer in job.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    if job.reparam is not None:
        job.reparam.update()
    if job.largest is not None and job.config.optim.qk_clip is not None:
        qk_clip.scale_heads(job.raw, qk_clip.factors(job.largest, job.config.optim.qk_clip))
    return lr, factor


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
    if job.reparam is not None:
        state |= {f"reparam.{name}": tensor for name, tensor in job.reparam.state().items()}
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
    if job.reparam is not None:
        job.reparam.load({n.removeprefix("reparam."): t for n, t in state.items() if n.startswith("reparam.")})
    for i, optimizer in enumerate(job.optimizers):
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            if name.startswith(f"optimizer.{i}."):
                _, _, index, slot = name.split(".", 3)
                slots.setdefault(int(index), {})[slot] = tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})
