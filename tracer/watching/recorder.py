"""Record a run directory from somebody else's training loop.

    recorder = tracer.watch(model, run="my-run", tokenizer=tokenizer)
    for batch in loader:
        ...                      # forward, backward, optimiser, as before
        recorder.step(loss)      # decides by itself when to measure

1. The first forward pass tells how the model is called (`calls`); a few rows of that batch are kept as the probe.
2. When a measurement is due, it is made between two steps, beside the training and not in it (`probing`).
3. Gradients are measured when the backward pass ends and when the optimiser starts, between which they are clipped,
   weights before and after it (`updates`).
4. Whatever goes wrong in here is said once, in a warning; then the recorder is off and the training goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tracer.store import ROOT, unused
from tracer.watching.calls import Calls
from tracer.watching.held_out import HeldOut
from tracer.watching.inputs import Inputs, batch_axis_first, loss_of
from tracer.watching.probing import Probing
from tracer.watching.refusals import CannotWatch
from tracer.watching.sites import bare, plain
from tracer.watching.tokens import Words
from tracer.watching.updates import Update, moved_by

SHARE = 0.01
"""Of the training time that measuring may take, unless told otherwise."""
ROWS = 8
"""Sequences of the first batch that are kept, at most; and at most a sixteenth of it."""


class LoopRecorder:
    """What `tracer.watch(model, run=...)` returns: call `step` once an update. A context manager, if one likes."""

    def __init__(
        self, model: nn.Module, run: str | Path, tokenizer: Any = None, *, share: float = SHARE,
        every: int | None = None, rows: int = ROWS, snapshot_mb: float = 500.0, held_out: Any = None,
    ) -> None:  # fmt: skip
        if not 0 < share <= 1:
            raise ValueError(f"share={share} must be over 0 and at most 1: the part of training time for measuring")
        if every is not None and every < 1:
            raise ValueError(f"every={every} must be at least 1, or None to let `share` decide")
        self.model = bare(model)
        self.dir = unused(ROOT / run if len(Path(run).parts) == 1 else Path(run))
        self.words = Words(tokenizer)
        self.held_out = None if held_out is None else HeldOut(held_out)
        self.share, self.every, self.rows, self.snapshot_mb = share, every, rows, snapshot_mb
        self.steps = 0
        """Updates made so far."""
        self.off: str | None = None
        """Why nothing is recorded any more; None while all is well."""
        self.seconds = 0.0
        """Spent on measuring so far."""
        self.probing: Probing | None = None
        self._row: dict[str, Any] | None = None
        self._update: Update | None = None
        self._stepping: torch.optim.Optimizer | None = None
        self._loss: Tensor | None = None
        self._records = self._pictures = self._since_picture = self._snapshots = 0
        self._snapshot_at = -1
        self._began = time.perf_counter()
        self._mark = (self._began, 0, 0.0)
        self._last_cost = self._setup = 0.0
        self._divergence: dict[str, Any] | None = None
        self._handles: list[Any] = []
        self._calls: Calls | None = None
        if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_rank():
            self.off = "the process of rank 0 records"
            return
        self._calls = Calls(model, self._first_call, self._take_loss)
        self._handles += [
            register_optimizer_step_pre_hook(self._before_update),
            register_optimizer_step_post_hook(self._after_update),
        ]
        at_exit(_close, weakref.ref(self))

    def __enter__(self) -> LoopRecorder:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        self.close(error)

    def step(self, loss: Tensor | float | None = None) -> None:
        """Count an update, and measure when that is due. `loss` is that of this step's batch; it may be left out when
        the model's output holds it. Never raises: what goes wrong switches the recorder off, with a warning."""
        if self.off is not None:
            self._detach()
            return
        with self._safely():
            if self.probing is None:
                raise CannotWatch(
                    "step() came before any call of the model that was given to tracer.watch: is it that model, and "
                    "not a copy, that is trained?"
                )
            self._commit(loss if loss is not None else self._loss)
            self.steps += 1
            if self.off is None and self._due():
                self._measure()

    def close(self, error: BaseException | None = None) -> None:
        """Measure the last state, commit everything, let go of the model. Also called when the program ends."""
        with self._safely():
            if self.off is None and error is None and self.probing is not None:
                if self._row is None:
                    self._measure(last=True)
                elif self._snapshot_at != self.steps:  # the row of the last state waits for a step that never came
                    self._snapshot(last=True)
            self._commit(None)
        self._detach()
        try:
            self._finish(error)
        except Exception as problem:
            self._say(f"manyeyes could not finish {self.dir}: {problem}")

    def _finish(self, error: BaseException | None = None) -> None:
        """Say in the run how it ended."""
        probing, self.probing = self.probing, None
        if probing is None or probing.writer is None:
            return
        facts: dict[str, Any] = {} if error is None else {"error": f"{type(error).__name__}: {error}"}
        facts |= {"recording_stopped": self.off} if self.off else {}
        facts |= {"divergence": self._divergence} if self._divergence else {}
        status = "diverged" if self._divergence else "finished" if error is None and not self.off else "stopped"
        probing.writer.close(status, step=self.steps, cost=self._cost(), **facts)

    # The loop goes by.

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.probing is not None or self.off is not None:
            return
        with self._safely():
            if any(hasattr(p, "device_mesh") for p in self.model.parameters()) or any(
                isinstance(m, FullyShardedDataParallel) for m in self.model.modules()
            ):
                raise CannotWatch("its weights are sharded over processes (FSDP), so no process can run it by itself")
            inputs = Inputs.of(args, kwargs)
            batch = inputs.batch or 1
            if batch_axis_first(self.model):
                batch = max(1, min(self.rows, math.ceil(batch / 16)))
            facts = {"kind": "watched"}
            self.probing = Probing(self.model, self.dir, inputs.rows(batch), self.words, facts, self.held_out)
            self._measure()

    def _take_loss(self, module: nn.Module, kwargs: dict[str, Any], output: Any) -> None:
        """The loss of the last pass; of Hugging Face's Trainer, which hands every micro-batch its share of the step's
        loss, the sum of these."""
        if self._row is None:
            return
        loss = loss_of(output)
        if kwargs.get("num_items_in_batch") is None:
            self._loss = loss
        elif module.training and loss is not None:
            self._loss = loss if self._loss is None else self._loss + loss

    def _before_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        with self._safely(in_hook=True):
            if self.off is not None or not any(moved_by(optimizer, self.model.parameters())):
                return
            self._stepping = optimizer
            closure = kwargs.get("closure", args[1] if len(args) > 1 else None)  # which may call the model
            if self.probing is None and closure is None:
                raise CannotWatch(
                    "the model is trained, but no call of it could be seen: does it run inside a function that "
                    "torch.compile compiled as a whole? Compile the model instead: torch.compile(model)"
                )
            if self._update is not None:
                with self._measuring():
                    self._update.starts(optimizer)

    def _after_update(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        with self._safely(in_hook=True):
            if self._update is not None and self._stepping is optimizer:
                with self._measuring():
                    self._update.ended()
            self._stepping = None

    @contextlib.contextmanager
    def _measuring(self) -> Iterator[None]:
        with self._safely(in_hook=True), self._timed(), torch.no_grad():
            yield

    def _due(self) -> bool:
        if self.every is not None:
            early = self.steps < self.every and self.steps & (self.steps - 1) == 0
            return early or self.steps % self.every == 0
        training = time.perf_counter() - self._began - self.seconds
        return self.seconds - self._setup + self._last_cost <= self.share * training

    def _measure(self, last: bool = False) -> None:
        assert self.probing is not None
        before, step_ms = self.seconds, self._step_ms()
        with self._timed():
            picture = last or self._since_picture >= self._pictures // 10  # ever rarer: about 10 ln(records) in all
            self._since_picture = 0 if picture else self._since_picture + 1
            self._pictures += picture
            self._row = {**self.probing.measure(self.steps, picture), "step_ms": step_ms}
            self._update = Update(self.probing.params, self._measuring)
            if self._stepping is not None:
                self._update.starts(self._stepping)
            self._records += 1
            if picture:
                self._snapshot(last)
        if self._records == 1:  # libraries are loaded and the run is laid out, once: no share of every step
            self._setup = self.seconds - before
        else:
            self._last_cost = self.seconds - before
        if self.probing.broken is not None:
            self._diverged(self.probing.broken)

    def _commit(self, loss: Tensor | float | None) -> None:
        """The row of the last measurement, now that its step is over."""
        row, self._row, self._loss = self._row, None, None
        update = self._let_go()
        if row is None or self.probing is None or self.probing.writer is None:
            return
        with self._timed():
            row |= update.row() if update is not None else {}
            if loss is not None:
                row["train_loss"] = float(loss.detach() if isinstance(loss, Tensor) else loss)
            self.probing.writer.record(self.steps, row)
            self.probing.writer.status("training", {"step": self.steps, "cost": self._cost()})
        if loss is not None and not math.isfinite(row["train_loss"]):
            self._diverged(None)

    def _snapshot(self, last: bool) -> None:
        """The weights, while they fit in the budget, of a model that can be built again; room is kept for the last."""
        assert self.probing is not None and self.probing.writer is not None
        if not self.probing.writer.meta["huggingface"]:
            return
        weights = distinct(self.model.state_dict())
        megabytes = sum(x.numel() * x.element_size() for x in weights.values()) / 1e6
        if self._snapshots == 0 or (self._snapshots + (1 if last else 2)) * megabytes <= self.snapshot_mb:
            self._snapshots += 1
            self._snapshot_at = self.steps
            self.probing.writer.snapshot(self.steps, weights)

    def _diverged(self, layer: int | None) -> None:
        """Not finite: say where first, keep what was recorded, and stop recording."""
        assert self.probing is not None
        bad = [name for name, p in self.probing.params.items() if not bool(p.isfinite().all())]
        module = None if layer is None else self.probing.watcher.layers[layer].name
        where = module or (bad[0] if bad else "the loss")
        text = f"not finite at step {self.steps}, first in {where}" + (f" (layer {layer})" if module else "")
        if bad:
            text += f"; {len(bad)} of {len(self.probing.params)} weights are not finite, the first is {bad[0]}"
        finding = {"where": where, "step": self.steps, "layer": layer, "head": None}
        self._divergence = {"step": self.steps, "text": text, "non_finite": finding}
        self._commit(None)
        self._switch_off(text)

    # Keeping out of the way.

    @contextlib.contextmanager
    def _safely(self, in_hook: bool = False) -> Iterator[None]:
        """`in_hook`: an optimiser is going through its hooks, of which none may be removed now."""
        if self.off is not None:
            yield
            return
        try:
            yield
        except Exception as error:
            why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            self._switch_off(why, detach=not in_hook)

    def _switch_off(self, why: str, detach: bool = True) -> None:
        self.off, self._row = why, None
        self._detach(optimizers=detach)
        with contextlib.suppress(Exception):  # a full disk is what may have switched it off
            self._finish()
        self._say(f"manyeyes stopped recording {self.dir.name}, training goes on. Why: {why}")

    def _say(self, text: str) -> None:
        """A warning, even where warnings are errors: nothing in here may end somebody's training."""
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        except RuntimeWarning:
            sys.stderr.write(text + "\n")

    def _detach(self, optimizers: bool = True) -> None:
        self._let_go()
        if self._calls is not None:
            self._calls.remove()
        while optimizers and self._handles:
            self._handles.pop().remove()

    def _let_go(self) -> Update | None:
        """The update that was being measured, which no longer hears of it."""
        update, self._update = self._update, None
        if update is not None:
            update.remove()
        return update

    def _now(self) -> float:
        if self.probing is not None and self.probing.device.type == "cuda":
            torch.cuda.synchronize(self.probing.device)
        return time.perf_counter()

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """What runs inside counts as the cost of recording."""
        began = self._now()
        try:
            yield
        finally:
            self.seconds += self._now() - began

    def _step_ms(self) -> float:
        """Mean milliseconds of a step since the last measurement, without measuring."""
        (then, step, spent), now = self._mark, self._now()
        self._mark = (now, self.steps, self.seconds)
        made = self.steps - step
        return 1000 * (now - then - (self.seconds - spent)) / made if made else float("nan")

    def _cost(self) -> dict[str, float]:
        """In the words of our own runs: seconds in all, and measuring as a share of the rest, setting up apart."""
        total = time.perf_counter() - self._began
        training, measuring = max(total - self.seconds, 1e-9), self.seconds - self._setup
        return {
            "seconds": total, "training_seconds": training, "recording_seconds": measuring,
            "recording_share": measuring / training, "records": self._records,
            "recording_ms": 1000 * measuring / max(1, self._records - 1), "setup_seconds": self._setup,
        }  # fmt: skip


def distinct(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor once: of tied weights the first name only, as safetensors wants it."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    kept = {}
    for name, x in weights.items():
        if (mark := (x.data_ptr(), tuple(x.shape))) not in seen or x.numel() == 0:
            seen.add(mark)
            kept[plain(name)] = x
    return kept


at_exit = getattr(threading, "_register_atexit", atexit.register)
"""Before the program's pools of threads end, which writing needs; plain atexit comes after them."""


def _close(recorder: weakref.ref[LoopRecorder]) -> None:
    """At the end of the program: an error that reached the top says that training was not finished."""
    one = recorder()
    if one is not None and one.probing is not None:
        one.close(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))
