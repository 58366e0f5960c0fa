"""The main process's side of training: keeps weights, records rows, and logs lines."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tracer.config import TrainConfig
from tracer.data import Data
from tracer.diagnosis import examine, verdict
from tracer.measures.gradients import fetch
from tracer.measures.strongest import induction_head
from tracer.model import Transformer
from tracer.model.generate import generate
from tracer.store import Run, RunWriter
from tracer.tracking.clock import Clock
from tracer.tracking.recording import Recording
from tracer.tracking.scalar_functions import ScalarFunctions
from tracer.tracking.telling import Telling
from tracer.training.probe_recorder import ProbeRecorder, record_steps
from tracer.training.progress import Terminal, perplexity

CHECKPOINT_SECONDS = 10.0
"""About this much work is repeated after a kill; more where leaving a resume point takes over 1 % of it."""
SAMPLE_TOKENS = 40
TEMPERATURES = (0.5, 0.0)
GRADIENTS_EVERY = 5
"""A table of gradients with every fifth log line, as in the tutorials (100 and 500 batches)."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, or a quota or a limit on file sizes has been reached."""
BROKEN = (errno.EIO, errno.EROFS, errno.ESTALE, errno.ENXIO, errno.ENODEV)
"""The disk, or the way to it, failed; Linux says so without naming a file."""


def between_points(seconds: float) -> float:
    """Seconds from one resume point to the next, where leaving one takes so many."""
    return max(CHECKPOINT_SECONDS, 100 * seconds)


class DiskFull(OSError):
    """The run could not be written on; everything committed before is kept."""


class TrainingSession:
    """A context manager around the loop; `keep`, `measure` and `write` are called once a step, in that order."""

    def __init__(
        self, model: Transformer, config: TrainConfig, data: Data, writer: RunWriter, recorder: ProbeRecorder,
        start: int, quiet: bool, telling: Telling, functions: ScalarFunctions,
    ) -> None:  # fmt: skip
        self.model, self.config, self.data, self.writer, self.recorder = model, config, data, writer, recorder
        self.snapshots, self.states = set(writer.meta["snapshot_steps"]), set(writer.meta["state_steps"])
        self.records = set(record_steps(config, sorted(self.snapshots)))
        self.terminal = Terminal(config.steps, start, quiet=quiet)
        if not quiet:  # else a warning says it
            recorder.own.measures.say = self.terminal.say
        self.row: dict[str, Any] | None = None
        self.clock = Clock(recorder.device, start)
        self.checkpointed, self.checkpoint_every = self.clock.began, CHECKPOINT_SECONDS
        self.start = self.step = start
        self.recording = Recording(self.clock, telling, functions)
        self.recording.begin(writer, list(recorder.params))
        telling.begin(writer)

    def __enter__(self) -> TrainingSession:
        self.terminal.__enter__()
        where = self.writer.dir
        self.terminal.say(
            f"{where.name}: {self.writer.meta['n_params']:,} parameters on {self.writer.meta['device']}, into {where}"
        )
        if (loss := self.writer.meta.get("loss")) is not None:
            self.terminal.say(f"trained on {loss}; the losses below are of the next token")
        parent = self.writer.meta.get("parent")
        if parent and parent["step"] == self.start:
            how = "goes on" if parent["optimizer"] == "continued" else "starts fresh"
            self.terminal.say(f"from {parent['run']} at step {parent['step']:,}; the optimizer {how}")
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        self.terminal.__exit__()
        if error is None:
            return
        if isinstance(error, OSError):  # no more writing: rows after a lost one would leave a gap that no resume fills
            self.writer.abandon()
            if error.errno in BROKEN:
                raise OSError(
                    error.errno,
                    f"the disk failed ({error.strerror}) at step {self.step}: everything committed before is kept; "
                    f"once it can be written again, `tracer resume {self.writer.dir}`",
                ) from error
            if error.errno not in FULL:
                return
            raise DiskFull(
                errno.ENOSPC,
                f"the disk is full at step {self.step}: everything committed before is kept; "
                f"free some space, then `tracer resume {self.writer.dir}`",
            ) from error
        self.close("stopped", error=f"{type(error).__name__}: {error}")

    def keep(self, step: int, state: Callable[[], dict[str, Tensor]], force: bool) -> None:
        """Keep the weights, or the whole state, when it is its turn; leave a resume point when forced or when the last
        one is old.

        Weights that are not finite never replace a resume point: a divergence is replayed from the last healthy one.
        """
        self.step = step
        self.terminal.update(step)
        age = time.perf_counter() - self.checkpointed
        due = force or age > self.checkpoint_every
        if not due and step not in self.snapshots and step not in self.states:
            return
        with self.clock.timed():
            began = self.clock.now()
            if due:  # before the snapshot: weights without a point to go on from would be a dead end
                if step == self.start or self._healthy():
                    self.writer.checkpoint(step, state(), cost=self.clock.cost())
                self.checkpointed = self.clock.now()
                self.checkpoint_every = between_points(self.checkpointed - began)
            if step in self.states:
                self.writer.keep_state(step, state())
            if step in self.snapshots:
                self.writer.snapshot(step, self.model.state_dict())

    def _healthy(self) -> bool:
        return bool(torch.stack([p.isfinite().all() for p in self.model.parameters()]).all())

    def measure(self, step: int, loss: Tensor, next_token: Tensor | None = None) -> None:
        """On a record step: head statistics, losses, g and w, while the gradients of the step are there.

        `loss`: what is trained on; where that is one of somebody's own, `next_token` is that of the next token.
        """
        if step not in self.records:
            return
        step_ms, last = self.clock.step_ms(step), step == self.config.steps
        with self.clock.timed():
            self.norms = self.recorder.before_update()
            self.recorder.own.measures.begins(self.clock.training, must=last)
            with_context = step % self.recorder.icl_every == 0 or last
            self.row = self.recorder.measure(self.model, step in self.snapshots, with_context)
            tokens = self.config.optim.batch_size * self.config.model.n_ctx
            if self.recorder.loss is not None and next_token is not None:
                self.row |= {self.recorder.loss.name: float(loss)}
                loss = next_token
            self.row |= {"train_loss": float(loss), "tokens_seen": float(step * tokens), "step_ms": step_ms}
            self.recording.ask(self.model, step, must=last)

    def write(self, step: int, lr: float | None, clip_factor: Tensor | None) -> None:
        """After the update (None: there was none, this is the last row): add u, store the row, log when due."""
        if self.row is None:
            return
        with self.clock.timed():
            if lr is None or clip_factor is None:
                self.row |= fetch(self.norms)
            else:
                self.row |= {**self.recorder.after_update(self.norms, clip_factor), "learning_rate": lr}
            self.recording.write(step, self.row)
        self.row = None
        self.clock.records += 1
        self._show(step)
        if step % self.config.record.log_every == 0 or step == self.config.steps:
            self._log(step)

    def close(self, status: str, **facts: Any) -> Run:
        """End the run with a status, and print the cost of recording."""
        self.recording.end(status, {**facts, "step": self.step})
        cost = self.writer.meta["cost"]
        if self.terminal.console.quiet:
            return Run(self.writer.dir)
        self.terminal.say(
            f"{status} at step {self.step} after {cost['seconds']:.0f} s; recording took "
            f"{cost['recording_share']:.1%} of training time ({cost['recording_ms']:.0f} ms a record), "
            f"sample texts {cost['samples_share']:.1%}"
        )
        diagnosis = examine(Run(self.writer.dir), self.recording.telling.rules)
        self.terminal.say(f"Health: {'; '.join([verdict(diagnosis).text, *(one.title for one in diagnosis.findings)])}")
        return Run(self.writer.dir)

    def diverged(self, divergence: dict[str, Any]) -> Run:
        """End the run as diverged and say where it began."""
        self.step = divergence["step"]
        self.terminal.say(f"the loss is not finite at step {divergence['step']}. {divergence['text']}")
        return self.close("diverged", divergence=divergence)

    def _show(self, step: int) -> None:
        last, tokens = self.recording.row, self.config.optim.batch_size * self.config.model.n_ctx
        rate = f"{1000 * tokens / last['step_ms']:,.0f}" if last["step_ms"] > 0 else "-"
        best = induction_head(last["induction"], last["induction_control"])
        said = "none" if best is None else f"{last['induction'][best]:.2f}"
        self.terminal.update(step, loss=f"{last['train_loss']:.3f}", best=said, rate=rate)

    def _log(self, step: int) -> None:
        began = time.perf_counter()
        row = self._log_row(step)
        self.writer.log(row)
        self.terminal.log(row, with_gradients=(step // self.config.record.log_every) % GRADIENTS_EVERY == 0)
        self._sample(step)
        self.clock.samples += time.perf_counter() - began

    def _log_row(self, step: int) -> dict[str, Any]:
        """Everything a log line of the tutorials carries, and the strongest induction head, where one stands out."""
        last = self.recording.row
        ratios = last.get("update_ratio", [float("nan")] * len(last["grad_norm"]))
        from_corpus = self.config.optim.batch_size * self.config.model.n_ctx * (1 - self.config.data.mix_share)
        epochs_a_step = from_corpus / self.data.n_train_tokens if self.data.n_train_tokens else None
        train_loss, val_loss = float(last["train_loss"]), float(last["val_loss"])
        return {
            "step": step, "steps": self.config.steps,
            "epoch": None if epochs_a_step is None else step * epochs_a_step,
            "epochs": None if epochs_a_step is None else self.config.steps * epochs_a_step,
            "tokens_seen": int(last["tokens_seen"]),
            "entropy": {str(i): [round(float(x), 4) for x in row] for i, row in enumerate(last["entropy"])},
            "step_ms": last["step_ms"],
            "train_loss": train_loss, "train_perplexity": perplexity(train_loss),
            "val_loss": val_loss, "val_perplexity": perplexity(val_loss),
            "icl_score": float(last["icl_score"]) if "icl_score" in last else None,
            "repeat_loss": float(last["repeat_loss"]),
            "trained_on": None if self.recorder.loss is None else float(last[self.recorder.loss.name]),
            **strongest(last["induction"], last["induction_control"]),
            "gradients": {
                name: [float(g), float(w), float(u)]
                for name, g, w, u in zip(
                    self.recorder.params, last["grad_norm"], last["weight_norm"], ratios, strict=True
                )
            },
        }  # fmt: skip

    def _sample(self, step: int) -> None:
        """Continue the held-out prompt at each temperature."""
        n_ctx = self.model.config.n_ctx
        start_token = [] if self.data.bos is None else [self.data.bos]
        prompt = [*start_token, *self.data.tokenizer.encode(self.data.prompt).ids][: n_ctx // 2]
        device = self.model.embed.W_E.device
        tokens = torch.tensor([prompt] * len(TEMPERATURES), device=device)
        try:
            texts = generate(self.model, tokens, SAMPLE_TOKENS, list(TEMPERATURES), seed=step)
        except FloatingPointError:  # the update broke the model: the loss of the next step says so
            return
        for temperature, ids in zip(TEMPERATURES, texts.tolist(), strict=True):
            text = self.data.tokenizer.decode(ids)
            start = self.data.tokenizer.decode(prompt[len(start_token) :])
            self.writer.sample({"step": step, "temperature": temperature, "prompt": start, "text": text})
            self.terminal.say(f"  sample at temperature {temperature}: {text[:100]!r}")


def strongest(induction: np.ndarray, control: np.ndarray) -> dict[str, str | float | None]:
    """What a log line says of the strongest induction head, from scores [layer head]; None where none stands out."""
    best = induction_head(induction, control)
    if best is None:
        return dict.fromkeys(("best_head", "best_induction", "best_control"))
    return {"best_head": f"L{best[0]}H{best[1]}", "best_induction": float(induction[best]),
            "best_control": float(control[best])}  # fmt: skip
