"""Record a run directory from somebody else's training loop.

    recorder = tracer.watch(model, run="my-run", tokenizer=tokenizer)
    for batch in loader:
        ...                      # forward, backward, optimiser, as before
        recorder.step(loss)      # decides by itself when to measure

1. The first pass with gradients, or after the first `step` the first of any kind, tells how the model is called
   (`calls`); a few rows of its batch are kept as the probe.
2. When a measurement is due, it is made between two steps, beside the training and not in it (`probing`).
3. At every update one number says whether everything is finite; where it is not, the model is looked at once, before
   the optimiser moves its weights (`finite_check`, `first_bad`).
4. Gradients are measured when the backward pass ends and when the optimiser starts, between which they are clipped,
   weights before and after it (`updates`).
5. Where no attention is seen, or none can be told apart, a warning says so once, and all is recorded but the heads.
   Whatever else goes wrong in here is said once, too; then the recorder is off and the training goes on.
6. One thread at a time is in here. What others do meanwhile is passed by; two that train at once are refused. In a
   process that was forked from this one (a DataLoader's worker) the recorder is off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tracer.data.any_tokenizer import Words
from tracer.data.own_probe import OwnRecord, Probes
from tracer.diagnosis.own_rules import Rules
from tracer.heads.own_measures import Measures
from tracer.hooks.inputs import Inputs, has_values
from tracer.hooks.refusals import CannotWatch
from tracer.hooks.sites import bare
from tracer.huggingface.architectures import Layout
from tracer.interventions.own_clamps import Given
from tracer.store import Run, open_run
from tracer.store.labels import Labels
from tracer.tracking.own_numbers import LOGGED
from tracer.tracking.recording import Recording
from tracer.tracking.scalar_functions import ScalarFunctions, Scalars
from tracer.tracking.telling import OnFinding, OnRecord, Telling
from tracer.tracking.tracking import say
from tracer.watching import lifetime
from tracer.watching.entrance import Entrance
from tracer.watching.every_update import EveryUpdate, Loss
from tracer.watching.finite_check import FiniteCheck
from tracer.watching.first_bad import NotFinite
from tracer.watching.gathering import Gathering
from tracer.watching.guard import RecorderGuard
from tracer.watching.held_out import HeldOut
from tracer.watching.kept_sequences import kept
from tracer.watching.loop_clamps import LoopClamps
from tracer.watching.model_calls import ModelCalls
from tracer.watching.one_record import OneRecord
from tracer.watching.optimizer_steps import OptimizerSteps
from tracer.watching.pace import Pace
from tracer.watching.probing import Probing
from tracer.watching.ranks import Ranks
from tracer.watching.rerun import Rerun, said
from tracer.watching.run_place import RunPlace
from tracer.watching.run_rows import RunRows
from tracer.watching.signs import Signs
from tracer.watching.training_passes import LargestLogits, Looks
from tracer.watching.undisturbed import undisturbed
from tracer.watching.weight_snapshots import Snapshots, rebuilding
from tracer.watching.wrong_options import refuse_wrong_options

SHARE = 0.01
"""Of the training time that measuring may take, unless told otherwise."""


class LoopRecorder:
    """What `tracer.watch(model, run=...)` returns: call `step` once an update. A context manager, if one likes."""

    def __init__(
        self, model: nn.Module, run: str | Path, tokenizer: Any = None, *, share: float = SHARE,
        every: int | None = None, rows: int | None = None, snapshot_mb: float = 500.0, build: str | None = None,
        held_out: Any = None, start_step: int | None = None, max_logits: Looks = "share",
        track: str | Sequence[str] | None = None, on_record: OnRecord | None = None,
        on_finding: OnFinding | None = None, measures: Measures = (), probes: Probes = None,
        scalars: Scalars | Sequence[Scalars] = (), settings: Any = None, note: str = "",
        tags: str | Sequence[str] = (), layout: Layout | str | Path | None = None,
        rules: Rules = (), replay: str | Path | None = None, steps: tuple[int, int] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """As `tracer.watch` says; `facts`: of run.json, where the loop is ours."""
        refuse_wrong_options(run, share, every, rows, start_step, replay is not None, steps)
        self._rerun = None if replay is None else Rerun(replay, steps)
        self._added = OwnRecord.given(measures, probes, say)
        self.model = bare(model)
        self._facts: dict[str, Any] = {"kind": "watched", **(facts or {})}
        self._facts |= rebuilding(self.model, build, layout, self._facts.get("built_with"))
        place = RunPlace.of(run, start_step)
        self._resumes, self.dir = place.resumes, place.dir
        self.words, self.rows = Words(tokenizer), rows
        self.held_out = None if held_out is None else HeldOut(held_out)
        self.steps = start_step or 0
        """Updates made so far, those of the jobs before this one too."""
        self.max_logits: Tensor | None = None
        """[layer, head] of the step that was just made: the largest logit in its training passes, exactly, over all
        processes where every pass is looked at (`max_logits="every"`). nan where no score was seen; None where no pass
        of this step was looked at."""
        again = self._rerun
        self.pace = Pace(share, every, None if again is None else (again.first, again.last))
        self.ranks = Ranks(self.model, place.named)
        self.probing: Probing | None = None
        self._clamps = LoopClamps(self.model, lambda: self.steps)
        if self._resumes:  # nothing is held until it is again
            self._clamps.before(open_run(self.dir).meta.get("clamp", []))
            self._facts["clamp"] = self._clamps.words
        self._labels = Labels.of(settings, note, tags)
        self._facts |= self._labels.facts
        self._recording = Recording(
            self.pace, Telling(track, on_record, on_finding, share, rules),
            ScalarFunctions(scalars, *(() if every or again else (share / 2, 0.0))),
        )  # fmt: skip
        self._facts |= {"scalars": names} if (names := self._recording.functions.names) else {}
        looks: Looks = "every" if again is not None and max_logits == "share" else max_logits
        self._largest = LargestLogits(looks, self.pace, self.ranks)
        self._every = EveryUpdate(self.pace)
        self._finite, self._signs, self._not_finite = FiniteCheck(self.pace), Signs(self.model), NotFinite()
        self._record = OneRecord(
            self.model, self.pace, self._recording, self._signs, Snapshots(self.model, snapshot_mb), self.ranks,
            self.steps, () if again is None else again.pictures,
        )  # fmt: skip
        self._gathering, self._entrance = Gathering(self.ranks), Entrance()
        self._guard = RecorderGuard(self._entrance, self.pace, self._gathering.may_wait, self._ends)
        self._rows = RunRows(
            self._recording, self._record, self._every, self._signs, self._largest, self._finite, self._not_finite,
            self._gathering, self.ranks, self.pace,
        )  # fmt: skip
        self._made = 0
        self._forked = False
        """Is this a forked process, in which `step` has not said so yet?"""
        place.take(self.model, self.ranks.rank)
        self._calls = ModelCalls(
            model, self._guard, self._entrance, self.pace, self._record, self._every, self._signs, self._finite,
            self._largest, self._known,
        )  # fmt: skip
        self._optimizers = OptimizerSteps(
            self.model, self._guard, self._entrance, self._every, self._finite, self._record,
            lambda: self._calls.any, self.check,
        )  # fmt: skip
        lifetime.enters(self)

    def __enter__(self) -> LoopRecorder:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        self.close(error)

    @property
    def off(self) -> str | None:
        """Why nothing is recorded any more; None while all is well."""
        return self._guard.off

    @property
    def last(self) -> dict[str, float]:
        """The latest record that is complete, flat, by readable names: `loss/train`, `attn/L3H5/entropy`, ..."""
        return self._recording.last

    @property
    def begun(self) -> bool:
        """Is there a run that has not ended?"""
        return self.probing is not None

    @property
    def replayed(self) -> dict[str, Any]:
        """Of a rerun that has ended: how it compares with the run that is made again; empty before."""
        return {} if self._rerun is None else dict(Run(self.dir).meta.get("replay") or {})

    @property
    def max_logits_unseen(self) -> str:
        """Why no training pass can be looked at; empty where they are."""
        return self._largest.unseen

    @property
    def should_stop(self) -> bool:
        """Did `on_finding` ask for the training to stop? Of several processes in all alike, from the next record on."""
        return self._recording.telling.stop if self.ranks.world == 1 else self._gathering.stop

    def step(self, loss: Loss | None = None, *, at: int | None = None) -> None:
        """Count an update, and measure when that is due. `loss` is that of this step's batch, or several, of which the
        mean is kept; it may be left out when the model's output holds it. `at`: the updates made so far, for a loop
        that counts them itself. Never raises: what goes wrong switches the recorder off, with a warning."""
        if self._forked:
            self._forked = False
            say(f"manyeyes records nothing here: {lifetime.FORKED}")
        if self.off is not None or not self._calls.heard:
            self._detach(optimizers=self._entrance.of_one)
            if self._clamps.clamps:  # whose windows go on
                self.steps = self.steps + 1 if at is None else at
            return
        with self._entrance, self._guard.safely(), self._entrance.alone():
            if not self._calls.any:
                raise CannotWatch(
                    "step() came before any call of the model in training: is it the one that was given to "
                    "tracer.watch, and not a copy, that is trained?"
                )
            loss = None if isinstance(loss, Tensor) and not has_values(loss) else loss  # of a dry run
            self._every.made(self.steps, loss, self._signs.print_of_update())
            self.max_logits = self._largest.of_step()
            bad = self._not_finite
            bad.first = bad.first or self._finite.of_update(self.steps, self._every.kept)
            if bad.first is not None and self.ranks.world == 1:
                self._diverged()
                return
            self._commit()
            self._made += 1
            self._calls.any = self.probing is not None  # a sample before the first step is no call in the training
            self.steps = self.steps + 1 if at is None else at
            alone, last = self.ranks.world == 1, self._record.step
            due = self.pace.due(self.steps, last) if alone else self.steps >= self._gathering.next
            if self.off is None and self.probing is not None and due:
                self._measure()
        if self._rerun is not None and self.steps > self._rerun.last:
            self.close(reloaded=True)  # the stretch is over, and its last record complete

    def evaluated(self, loss: float) -> None:
        """Take along the loss of the loop's own evaluation of the model as it is now; of several processes, in all."""
        if self.off is None and self._calls.heard:
            with self._entrance, self._guard.safely():
                if self._record.row is None and self.probing is not None:  # else it is that of the first record
                    self._measure()
                self._rows.evaluation = float(loss)

    def log(self, numbers: Mapping[str, Any]) -> None:
        """Keep any numbers by name, at any step: `recorder.log({"accuracy": 0.5, "mass": array})`.

        A value is one number, or an array of [layer] or [layer, head], as many as the run has; infinite ones and nan
        are kept as they are. It is about the model as it is now, `steps` updates old: as `loss` is, if it comes before
        the update's `step`. One number is kept at its own update (`run.updates`); where the next record is, that row of
        the trace has the latest of each name, an array too. A name once used keeps its kind, also in a job that goes on
        with the run; what cannot be kept is told in a warning, once a name. Of several processes rank 0's are kept.
        """
        if self.off is None and self._calls.heard:
            with self._entrance, self._guard.safely():
                kept = self._recording.own.keep(numbers, LOGGED)
                self._every.logged({name: x for name, x in kept.items() if not isinstance(x, np.ndarray)})

    def clamp(self, clamps: Given) -> None:
        """Hold heads from here on, in each pass of the model and in what is measured of it: "L1H2 off",
        "L1H2 = module:function", {"L1H2": function} (docs/own.md), also for steps, "L1H2 off 200:600". () lets go.

        What was held before is held no more. run.json says what was held, and when; the run's model comes without. A
        ValueError says what can be no clamp, here or in the pass that would hold it. Where several processes train,
        each must call it.
        """
        if not self._calls.heard and self.off is None:
            raise ValueError("no clamp can be held: the recorder is closed")
        with self._entrance:
            self._clamps.hold(clamps)
            self._facts["clamp"] = self._clamps.words
            with self._guard.safely():
                if self.probing is not None and self.probing.writer is not None:
                    self.probing.writer.status("training", {"clamp": self._clamps.words})

    def close(self, error: BaseException | None = None, *, reloaded: bool = False) -> None:
        """Measure the last state, unless other weights were `reloaded` since, commit everything, let go of the model.
        Also called when the program ends."""
        with self._entrance, self._guard.safely():
            if self.off is None and self.probing is not None:
                together = self.ranks.world == 1 or error is None and not self.ranks.absent("close")
                if error is None and together and not reloaded:
                    if self._record.row is None:
                        self._measure(last=True)
                    elif self._record.snapshots.at != self.steps:  # its row waits for a step that never came
                        self._record.snapshots.take(self.probing.writer, self.steps, last=True)
                if together:
                    self._commit()
                if lost := self._rows.lost:
                    say(f"manyeyes kept no {', '.join(lost)} of what was logged last: no record came after it")
        self._detach()
        self._clamps.end()  # no sooner: what is held holds where nothing is recorded any more, too
        try:
            self._finish(error)
        except Exception as problem:
            say(f"manyeyes could not finish {self.dir}: {problem}")

    def _finish(self, error: BaseException | None = None) -> None:
        """Say in the run how it ended."""
        probing, self.probing = self.probing, None
        if probing is None or probing.writer is None:
            return
        self._rows.end(probing, self.steps, error, self.off, self.should_stop)
        if self._rerun is not None and not self.off:
            self._rerun.finish(self.dir)
            say(f"manyeyes, {self.dir.name}: {said(self.replayed)}")

    def _known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """The model is called, in training or in an evaluation: has it been measured, or is it now?"""
        if self.probing is None:
            self._calls.any = True
            if not self._made and not torch.is_grad_enabled():  # a sample before a training that has gradients
                return False
            self._first_call(args, kwargs)
        return True

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a few rows, and measure them."""
        self._guard.off = self.ranks.meet(self.model)
        if self.off is not None:
            self._detach()
            return
        inputs = kept(self.model, Inputs.of(args, kwargs), self.rows, self.ranks, self._probe_of())
        self.pace.device = next((x.device for x in inputs.leaves if isinstance(x, Tensor)), torch.device("cpu"))
        self.probing = Probing(
            self.model, self.dir, inputs, self.words, self._facts, self.held_out,
            ranks=self.ranks, resumes=self._resumes, own=self._added,
        )  # fmt: skip
        self.probing.clamps = self._clamps
        self._measure()
        if self.off is not None:
            return
        if no_heads := self.probing.no_heads:
            self._largest.unseen = no_heads
            if self.probing.writer is not None:
                say(
                    f"manyeyes records {self.dir.name} without heads: {no_heads}. All that needs no heads is recorded: "
                    "losses, learning rate, speed, gradients, weights and their updates, signs of health"
                    + (". Measures of your own are of heads: none of them is" if self._added.measures.all else "")
                )
        else:
            self._largest.watch(self.model, self.probing.watcher.map, self._guard.looking)
        self._finite.watch(self.probing.anatomy, lambda: undisturbed(self.model, self.pace.device))
        self._recording.begin(self.probing.writer, list(self.probing.params))
        if self.probing.writer is not None:
            self._labels.write_note(self.dir)
            try:
                self._recording.telling.begin(self.probing.writer)
            except ValueError as error:
                say(f"manyeyes tells no tracker, recording and training go on: {error}")

    def _probe_of(self) -> Path | None:
        """The run whose kept sequences are the probe here, too."""
        return self._rerun.parent.dir if self._rerun is not None else self.dir if self._resumes else None

    def check(self, optimizer: torch.optim.Optimizer) -> None:
        """The gradients of an update are there, and its optimiser has not begun: is everything finite?"""
        with self._guard.safely(in_hook=True):
            if self.off is None and self.probing is not None:
                self._finite.before(optimizer, self.steps, self._every.returned_loss)

    def _measure(self, last: bool = False) -> None:
        assert self.probing is not None
        self._record.measure(self.probing, self.steps, self._made, last, self._optimizers.now, self._guard.measuring)
        if self.probing.broken:
            self._diverged()

    def _commit(self) -> None:
        if wrong := self._rows.commit(self.probing, self.steps, self._made):
            self._switch_off(wrong)
        elif self._rows.broken and self.off is None:
            self._diverged()

    def _diverged(self) -> None:
        """Not finite: say where first, keep what was recorded, and stop recording."""
        assert self.probing is not None
        bad = self._not_finite
        bad.found(bad.first or self.probing.not_finite(self.steps), self.steps)
        self._commit()
        self._switch_off(bad.told(self.steps))

    def _switch_off(self, why: str, detach: bool = True) -> None:
        self._guard.switch_off(why, detach)

    def _ends(self, why: str, detach: bool) -> None:
        """Nothing is recorded any more; the training goes on."""
        self._record.row = None
        self._detach(optimizers=detach)
        with contextlib.suppress(Exception):  # a full disk is what may have switched it off
            self._finish()
        ours = "built_with" in self._facts
        then = "and the training, which is ours" if ours else "training goes on"
        say(f"manyeyes stopped recording {self.dir.name}, {then}. Why: {why}")

    def forked(self) -> None:
        """This is a forked process: the threads that write and the training are in the other one."""
        self._guard.off, self._forked = self.off or lifetime.FORKED, self.off is None
        self.probing = self._record.row = None
        self._entrance.forked()

    def _detach(self, optimizers: bool = True) -> None:
        self._record.let_go()
        self._largest.end()
        self._calls.remove()
        if optimizers:
            self._optimizers.remove()
