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
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tracer.diagnosis import Finding
from tracer.store import ROOT, RunWriter, newest, open_run, unused
from tracer.tracking import Tracking, scalars
from tracer.tracking.tracking import check
from tracer.watching.alerts import Alerts, OnFinding
from tracer.watching.calls import Calls
from tracer.watching.every_update import EveryUpdate, write
from tracer.watching.held_out import HeldOut
from tracer.watching.inputs import Inputs, batch_axis_first, loss_of
from tracer.watching.pace import Pace
from tracer.watching.probing import Probing
from tracer.watching.ranks import Ranks, copies, data_parallel, sharded, side_by_side
from tracer.watching.refusals import CannotWatch
from tracer.watching.sites import bare, plain
from tracer.watching.tokens import Words
from tracer.watching.training_passes import TrainingPasses, unseen_because
from tracer.watching.updates import Update, moved_by, row_of, unknown

SHARE = 0.01
"""Of the training time that measuring may take, unless told otherwise."""
ROWS = 8
"""Sequences of the first batch that are kept, at most; and at most a sixteenth of it."""
Looks = Literal["share", "every", "never"]
"""Which training passes are looked at for their largest logits: those that half of `share` pays for, each, or none."""
OnRecord = Callable[[int, dict[str, float]], object]
"""Called with the step of a record and `last`, in the process that writes."""


class LoopRecorder:
    """What `tracer.watch(model, run=...)` returns: call `step` once an update. A context manager, if one likes."""

    def __init__(
        self, model: nn.Module, run: str | Path, tokenizer: Any = None, *, share: float = SHARE,
        every: int | None = None, rows: int = ROWS, snapshot_mb: float = 500.0, held_out: Any = None,
        start_step: int | None = None, max_logits: Looks = "share", track: str | Sequence[str] | None = None,
        on_record: OnRecord | None = None, on_finding: OnFinding | None = None,
    ) -> None:  # fmt: skip
        if not 0 < share <= 1:
            raise ValueError(f"share={share} must be over 0 and at most 1: the part of training time for measuring")
        if every is not None and every < 1:
            raise ValueError(f"every={every} must be at least 1, or None to let `share` decide")
        if max_logits not in get_args(Looks):
            raise ValueError(f"max_logits={max_logits!r} is none of {', '.join(map(repr, get_args(Looks)))}")
        if start_step is not None and start_step < 0:
            raise ValueError(f"start_step={start_step} must be at least 0: updates that were made before this job")
        if track is not None:
            check((track,) if isinstance(track, str) else track)
        self.model = bare(model)
        named = ROOT / run if len(Path(run).parts) == 1 else Path(run)
        before = newest(named) if start_step else None
        self._resumes, self.dir = before is not None, before or unused(named)
        self.words = Words(tokenizer)
        self.held_out = None if held_out is None else HeldOut(held_out)
        self.rows, self.snapshot_mb, self._looks = rows, snapshot_mb, max_logits
        self.steps = start_step or 0
        """Updates made so far, those of the jobs before this one too."""
        self.off: str | None = None
        """Why nothing is recorded any more; None while all is well."""
        self.last: dict[str, float] = {}
        """The latest record that is complete, flat, by readable names: `loss/train`, `attn/L3H5/entropy`, ..."""
        self.max_logits: Tensor | None = None
        """[layer, head] of the step that was just made: the largest logit in its training passes, exactly, over all
        processes where every pass is looked at (`max_logits="every"`). nan where no score was seen; None where no pass
        of this step was looked at."""
        self.max_logits_unseen = ""
        """Why no training pass can be looked at; empty where they are."""
        self.should_stop = False
        """Did `on_finding` ask for the training to stop? Of several processes in all alike, from the next record on."""
        self.pace = Pace(share, every)
        self.ranks = Ranks()
        self.probing: Probing | None = None
        self._alerts = Alerts(self.dir, on_finding, share)
        self._alerted = on_finding is not None or track is not None
        self._on_record, self._track = on_record, track
        self._tracking: Tracking | None = None
        self._passes: TrainingPasses | None = None
        self._largest: Tensor | None = None
        self._row: dict[str, Any] | None = None
        self._row_step = self.steps
        self._update: Update | None = None
        self._stepping: torch.optim.Optimizer | None = None
        self._loss: Tensor | None = None
        self._evaluation = float("nan")
        self._every = EveryUpdate(self.pace)
        self._pictures = self._since_picture = self._snapshots = 0
        self._snapshot_at = self._next = -1
        self._made = 0
        self._divergence: dict[str, Any] | None = None
        self._expected = self._gathering = False
        self._trouble = ""
        """What went wrong in this process, until the others are told."""
        self._handles: list[Any] = []
        self._calls: Calls | None = Calls(model, self._call_begins, self._take_loss)
        self._handles += [
            register_optimizer_step_pre_hook(self._before_update),
            register_optimizer_step_post_hook(self._after_update),
        ]
        at_exit(_close, weakref.ref(self))

    def __enter__(self) -> LoopRecorder:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        self.close(error)

    @property
    def seconds(self) -> float:
        """Spent on recording so far."""
        return self.pace.seconds

    def step(self, loss: Tensor | float | None = None, *, at: int | None = None) -> None:
        """Count an update, and measure when that is due. `loss` is that of this step's batch; it may be left out when
        the model's output holds it. `at`: the updates made so far, for a loop that counts them itself. Never raises:
        what goes wrong switches the recorder off, with a warning."""
        if self.off is not None:
            self._detach()
            return
        with self._safely():
            if self.probing is None:
                raise CannotWatch(
                    "step() came before any call of the model that was given to tracer.watch: is it that model, and "
                    "not a copy, that is trained?"
                )
            loss = self._loss if loss is None else loss
            self._loss = None
            self._every.made(self.steps, loss)
            self._take_largest()
            self._commit()
            self._made += 1
            self.steps = self.steps + 1 if at is None else at
            if self.off is None and self._due():
                self._measure()

    def evaluated(self, loss: float) -> None:
        """Take along the loss of an evaluation that the loop made by itself, of the model as it is now."""
        if self.off is None and self.probing is not None:
            with self._safely():
                if self._row is None:
                    self._measure()
                self._evaluation = float(loss)

    def close(self, error: BaseException | None = None) -> None:
        """Measure the last state, commit everything, let go of the model. Also called when the program ends."""
        with self._safely():
            if self.off is None and self.probing is not None:
                together = self.ranks.world == 1 or error is None and self.ranks.agree("close")
                if error is None and together:
                    if self._row is None:
                        self._measure(last=True)
                    elif self._snapshot_at != self.steps:  # the row of the last state waits for a step that never came
                        self._snapshot(last=True)
                if together:
                    self._commit()
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
        write(probing.writer, self._every.take())
        facts: dict[str, Any] = {} if error is None else {"error": f"{type(error).__name__}: {error}"}
        facts |= {"recording_stopped": self.off} if self.off else {}
        facts |= {"divergence": self._divergence} if self._divergence else {}
        status = "diverged" if self._divergence else "finished" if error is None and not self.off else "stopped"
        status = "stopped" if status == "finished" and self.should_stop else status
        facts |= {"step": self.steps, "cost": self.pace.cost()}
        if self._alerted:  # before the run is closed, since what is found is part of it
            probing.writer.status(status, facts)
            probing.writer.flush()
            probing.writer.wait()
            self._tell(probing.writer, self._alerts.look())
        probing.writer.close(status, **facts)
        if self._tracking is not None:
            self._tracking.close(failed=status == "diverged" or error is not None)
        self.ranks.leave()

    # The loop goes by.

    def _call_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called, by the training or by an evaluation."""
        if self.off is not None:
            return
        with self._safely():
            if self.probing is None:
                self._first_call(args, kwargs)
            if self.off is not None:
                return
            self._every.called(args, kwargs)
            passes = self._passes
            if passes is not None and torch.is_grad_enabled() and (self._looks == "every" or self.pace.may_look()):
                assert self._calls is not None
                if unseen := unseen_because(self.model):
                    self.max_logits_unseen, self._passes = unseen, None
                    return
                with self.pace.looks():
                    passes.begin(self._calls.at, args, kwargs)

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a few rows, and measure them."""
        if not self.ranks.join():
            if self.ranks.rank:
                self.off = "tracer.watch was called in the process of rank 0 and not in all: that one records"
                self._detach()
                return
            if sharded(self.model):
                raise CannotWatch(
                    "its weights are sharded over processes, so no process can run it by itself: call tracer.watch in "
                    "every process"
                )
        inputs = Inputs.of(args, kwargs)
        batch = self.ranks.first(inputs.batch or 1) * data_parallel(self.model, self.ranks.world)
        if batch_axis_first(self.model):
            batch = max(1, min(self.rows, math.ceil(batch / 16)))
        inputs = inputs.rows(batch)
        if self._resumes and self.ranks.rank == 0:
            inputs = inputs.restored(open_run(self.dir).probe())
        inputs = inputs.restored(self.ranks.first(inputs.tensors()))
        device = next((x.device for x in inputs.leaves if isinstance(x, Tensor)), torch.device("cpu"))
        self.pace.device = device
        self.probing = Probing(
            self.model, self.dir, inputs, self.words, {"kind": "watched"}, self.held_out,
            ranks=self.ranks, resumes=self._resumes,
        )  # fmt: skip
        self._measure()
        if self._looks != "never":
            found = self.probing.watcher.map
            self._passes = TrainingPasses(self.model, found, device, self._looking)
        if self._track is not None and self.probing.writer is not None:
            self._tracking = Tracking(self._track, self.dir, self.probing.writer.meta)

    def _take_loss(self, module: nn.Module, kwargs: dict[str, Any], output: Any) -> None:
        """The loss of the last pass; of Hugging Face's Trainer, which hands every micro-batch its share of the step's
        loss, the sum of these."""
        if not torch.is_grad_enabled():  # an evaluation
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
            self._every.rate(optimizer.param_groups[0]["lr"])
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
        with self._safely(in_hook=True), self.pace.timed(), torch.no_grad():
            yield

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        with self._safely(in_hook=True), self.pace.looks(), torch.no_grad():
            yield

    def _take_largest(self) -> None:
        """The largest logits of this step's passes; over all processes where all look at each."""
        found = None if self._passes is None else self._passes.take()
        if found is not None:
            self._largest = found if self._largest is None else torch.fmax(self._largest, found)
        if found is not None and self._looks == "every" and self.ranks.world > 1:
            with self.pace.timed():
                every = self.ranks.all({"largest": found.cpu().numpy(), "place": np.array(self.ranks.place)})
                found = torch.from_numpy(side_by_side(every)).to(found)
        self.max_logits = found

    def _due(self) -> bool:
        if self.ranks.world == 1:
            return self.pace.due(self.steps)
        return self.steps >= self._next

    def _measure(self, last: bool = False) -> None:
        assert self.probing is not None
        self._expected = True
        step_ms = self.pace.step_ms(self._made)
        with self.pace.measuring():
            picture = last or self._since_picture >= self._pictures // 10  # ever rarer: about 10 ln(records) in all
            self._since_picture = 0 if picture else self._since_picture + 1
            self._pictures += picture
            self._row_step = self.steps
            self._row = {**self.probing.measure(self.steps, picture), "step_ms": step_ms}
            self._update = Update(self.probing.params, self._measuring, self.probing.heads)
            if self._stepping is not None:
                self._update.starts(self._stepping)
            if picture:
                self._snapshot(last)
        if self.probing.broken is not None:
            self._diverged(self.probing.broken)

    def _commit(self) -> None:
        """The row of the last measurement, now that its step is over; and what is known of the updates before it."""
        expected, self._expected = self._expected, False
        row, self._row = self._row, None
        update, probing = self._let_go(), self.probing
        if probing is None:
            return
        if not expected:
            if probing.writer is not None and self.ranks.world == 1 and self._every.due():
                write(probing.writer, self._every.take())
            return
        with self.pace.timed():
            updates = self._every.take()
            row = self._together(row or {}, update, updates, probing)
            if self.off is None:
                self._record(row, updates, probing)
        if not math.isfinite(row.get("train_loss", 0.0)) and self.off is None:
            self._diverged(None)

    def _together(
        self, row: dict[str, Any], update: Update | None, updates: dict[str, np.ndarray], probing: Probing
    ) -> dict[str, Any]:
        """One record of what all processes found; `updates` is made that of all."""
        largest, self._largest = self._largest, None
        shape = row["entropy"].shape if "entropy" in row else probing.shape
        nothing = np.full(shape, np.nan)
        given: dict[str, np.ndarray] = {
            "loss": updates["train_loss"], "tokens": updates["tokens"],
            "largest": nothing if largest is None else largest.cpu().numpy(),
            "next": np.array(self.pace.next_after(self.steps, self._made) if self.ranks.world > 1 else 0),
            "place": np.array(self.ranks.place), "stop": np.array(self._alerts.stop),
            "trouble": np.array(bool(self._trouble)),
        }  # fmt: skip
        norms = unknown(probing.params, probing.heads) if update is None else update.norms()
        given |= {f"norm/{name}": x for name, x in norms.items()}
        split = self.ranks.split if len(self.ranks.split) > 1 else []
        parted = {
            name: x for name, x in row.items() if split and np.shape(x)[:2] == shape or name == "pattern" and split
        }
        given |= {f"head/{name}": x for name, x in parted.items()}
        self._gathering = True
        every = self.ranks.all(given)
        self._gathering = False
        if any(one["trouble"] for one in every):
            self._switch_off(self._trouble or "another process could not measure; its own warning says why")
            return {}
        self._next, self.should_stop = int(every[0]["next"]), bool(every[0]["stop"])
        if self.ranks.world > 1:
            updates["train_loss"] = np.mean([one["loss"] for one in every], 0)
            updates["tokens"] = np.sum([one["tokens"] for one in every], 0) / max(1, len(split))
            for name in parted:
                axis = 2 if name == "pattern" else 1
                row[name] = np.concatenate([every[rank][f"head/{name}"] for rank in split], axis)
        found = {name: self._norm(every, f"norm/{name}", probing) for name in norms}
        row |= row_of(found, probing.heads)
        if "max_logit" in row:
            row["max_logit"] = np.fmax(row["max_logit"], side_by_side(every)).astype(np.float32)
        if len(updates["step"]) and updates["step"][-1] == self._row_step:
            row["learning_rate"] = float(updates["learning_rate"][-1])
            if updates["told"][-1]:
                row["train_loss"] = float(updates["train_loss"][-1])
        return row

    def _norm(self, every: list[dict[str, np.ndarray]], name: str, probing: Probing) -> np.ndarray:
        """Norms of whole weights from those of their parts."""
        if self.ranks.world == 1:
            return every[0][name].astype(np.float32)
        times = copies(self.model, probing.params, self.ranks.world)
        times = np.concatenate([times, np.full(len(every[0][name]) - len(times), float(self.ranks.world))])
        return np.sqrt(np.sum([one[name] ** 2 for one in every], 0) / times)

    def _record(self, row: dict[str, Any], updates: dict[str, np.ndarray], probing: Probing) -> None:
        """Write a record, and tell who wants to know."""
        if math.isfinite(self._evaluation):
            row["val_loss"], self._evaluation = self._evaluation, float("nan")
        self.last = scalars(row, list(probing.params))
        writer = probing.writer
        if writer is None:
            return
        write(writer, updates)
        writer.record(self._row_step, row)
        writer.status("training", {"step": self.steps, "cost": self.pace.cost()})
        if self._on_record is not None:
            self._on_record(self._row_step, self.last)
        if self._tracking is not None:
            self._tracking.record(self._row_step, row)
        if self._alerted and self._alerts.due():
            writer.flush()
            writer.wait()
            self._tell(writer, self._alerts.look())

    def _tell(self, writer: RunWriter, new: list[Finding]) -> None:
        for one in new:
            writer.finding({"step": one.step, "kind": one.kind, "severity": one.severity, "title": one.title,
                            "heads": [list(head) for head in one.heads], "evidence": one.evidence})  # fmt: skip
            if self._tracking is not None:
                self._tracking.alert(one)
        if self.ranks.world == 1:
            self.should_stop = self._alerts.stop

    def _snapshot(self, last: bool) -> None:
        """The weights, while they fit in the budget, of a model that can be built again; room is kept for the last."""
        assert self.probing is not None
        if self.probing.writer is None or not self.probing.writer.meta["huggingface"]:
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
        self._commit()
        self._switch_off(text)

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
            if self.ranks.world > 1 and self._next > 0 and not self._gathering:
                self._trouble = self._trouble or why  # the others go on to the next record, where they are told
            else:
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
        if self._passes is not None:
            self._passes.end()
            self._passes = None
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
