"""Measure somebody's model on fixed inputs, and write what was found as a run directory.

The inputs are a few sequences kept from a real call of the model, and, when it reads tokens and nothing else that
nobody could know, Probe R (random tokens that repeat). The model runs on them in eval mode, without gradients,
uncompiled, with every random state put back afterwards. A watched model without heads is measured as well: its losses,
weights and updates need none.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tracer.data import probes
from tracer.data.any_tokenizer import Words
from tracer.data.own_probe import OwnRecord, Probe, loss_on
from tracer.heads.averages import of_probes, with_errors
from tracer.heads.row_block import OwnRows
from tracer.hooks.discovered import DiscoveredAttention, holding
from tracer.hooks.inputs import Inputs, batch_axis_first, logits_of
from tracer.hooks.refusals import CannotWatch, NoHeads, nothing_seen
from tracer.hooks.sites import Layer, plain
from tracer.measures import CONTROLS, HEAD_MEASURES, REPEAT_MEASURES, SE, TEXT_MEASURES
from tracer.measures.gradients import fetch
from tracer.store import Run, RunWriter
from tracer.store.trace_layout import HEAD_MEANS, kept_prompts
from tracer.torch_internals import tree_leaves
from tracer.tracking.tracking import say
from tracer.watching import causality, first_bad, head_weights, stream
from tracer.watching.held_out import HeldOut
from tracer.watching.loop_clamps import LoopClamps
from tracer.watching.ranks import Ranks, sharded, split_over
from tracer.watching.run_directory import PROBE_ROWS, FirstLook, RunDirectory
from tracer.watching.undisturbed import undisturbed
from tracer.watching.watcher import FIRST_ROW_ON, Watcher

N_PROMPTS = 2
"""Sequences whose patterns are kept, of the kept batch and of Probe R each."""
WIDTHS = (128, 96, 64, 48, 32)
PATTERN_ROW_BYTES = 4 << 20
"""Patterns are kept for as many first positions, of WIDTHS, as fit in this with all heads together."""
MOST_REASON = 1000
"""Characters of why there are no heads, as in run.json (`tracer.store.schema.Word`)."""


class Probing:
    """The probes of one model, and the run directory that their results go to (made at the first measurement)."""

    def __init__(
        self, model: nn.Module, directory: Path, inputs: Inputs, words: Words, facts: dict[str, Any],
        held_out: HeldOut | None = None, *, ranks: Ranks | None = None, resumes: bool = False,
        own: OwnRecord | None = None,
    ) -> None:  # fmt: skip
        self.ranks, self._resumes, self._began = ranks or Ranks(model, directory), resumes, False
        self.model, self.dir, self.inputs, self.words, self.facts = model, directory, inputs, words, facts
        self.held_out = held_out
        self.own = own or OwnRecord.given((), None, say)
        """What a user adds to each record,"""
        self._own_inputs: dict[str, Inputs] = {}
        """and the model's call on each probe of theirs."""
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.params = {plain(name): p for name, p in model.named_parameters() if p.requires_grad}
        self.watcher = Watcher(model, keep=N_PROMPTS)
        self.clamps = LoopClamps(model, lambda: 0)
        """Those of the training, which hold in what is measured of heads and losses, too."""
        self.heads: head_weights.HeadMatrices | None = None
        """Which weights are whose, once the model has been measured."""
        self.no_heads = ""
        """Why nothing of heads is measured: a model in training had none in its first pass; empty where it had some."""
        self.writer: RunWriter | None = None
        self.begun: Run | None = None
        """A run of these very probes that goes on, instead of a new one."""
        self.broken = False
        """Was some attention not finite in the last measurement; or NaN in what a model without heads gives first?"""
        self._repeat: Inputs | None = None
        self._control: Inputs | None = None
        self._period: int | None = None
        self._width = 1
        self._blocks: list[nn.Module] = []

    @property
    def shape(self) -> tuple[int, int]:
        """Layers, and heads of a layer that are in this process."""
        layers = [] if self.no_heads else self.watcher.layers
        return len(layers), max((layer.n_heads for layer in layers), default=0)

    def measure(self, step: int, with_patterns: bool) -> dict[str, Any]:
        """One row of the trace, as far as the model's own weights say it; CannotWatch when it cannot be trusted."""
        with undisturbed(self.model, self.device), self.clamps.paused(), holding(self.watcher.map, self.clamps.now):
            self.watcher.own = self.own.measures.on("text")
            with self._seeing(), stream.sizes(self._blocks) as sizes:
                output = self.inputs.run(self.model)
            row = self._of_heads(output)
            losses = self._losses(output)
            if not self._began:
                self._begin(step)
                again = self.clamps.paused(False)
                with again, torch.compiler.set_stance("force_eager"), stream.sizes(self._blocks) as sizes:
                    self.inputs.run(self.model)
            if len(sizes) == len(self._blocks) + 1 > 1:
                row |= fetch({"resid_rms": torch.stack([sizes[depth] for depth in range(len(sizes))])})
            patterns = with_patterns and not self.no_heads
            pictures = [self.watcher.pictures(N_PROMPTS, self._width)] if patterns else []
            row |= losses
            if with_patterns and self.facts["kind"] == "watched" and not sharded(self.model):
                row["future_effect"] = causality.future_effect(self.model, self.inputs)
                row["row_effect"] = causality.row_effect(self.model, self.inputs)
            if self._repeat is not None:
                row |= self._on_repeat(pictures, patterns)
            for name, inputs in self._own_inputs.items():
                row |= self._on_own(name, inputs)
        self.own.measures.seen(row)
        if patterns:
            row["pattern"] = np.concatenate(pictures)
        return row

    def _seeing(self) -> AbstractContextManager[Any]:
        """Around a pass of the model, which runs uncompiled: its heads are measured, if it has any."""
        return torch.compiler.set_stance("force_eager") if self.no_heads else self.watcher

    def _of_heads(self, output: Any) -> dict[str, Any]:
        """The measures of heads in the pass that has just run, and gave this; none where the first showed no heads."""
        names = (*TEXT_MEASURES, *(name + SE for name in TEXT_MEASURES if name in HEAD_MEANS))
        try:
            on_text = {} if self.no_heads else self.watcher.arrays((*names, *_own_names(self.watcher.own)))
        except NoHeads:
            if self.facts["kind"] != "watched":  # of a model that is not trained here heads are all there is
                raise
            self.no_heads, on_text = nothing_seen(self.model, self.watcher.map, ran=True)[:MOST_REASON], {}
        if self.no_heads:  # what is masked may be -inf, and what comes after the first may be kept blank
            given = (x for x in tree_leaves(output) if isinstance(x, Tensor) and x.is_floating_point())
            self.broken = any(bool(x.isnan().any()) for x in itertools.islice(given, 1))
            return {}
        self.broken = self.watcher.first_broken() is not None
        return {name: np.full_like(on_text["entropy"], np.nan) for name in HEAD_MEASURES} | on_text

    @property
    def anatomy(self) -> first_bad.Model:
        """What is known of the model, once it has been measured."""
        return first_bad.Model(self.model, self.params, self.watcher, self.heads, tuple(self._blocks))

    def not_finite(self, step: int) -> first_bad.FirstBad | None:
        """The first value that is not finite as the model runs on the kept inputs now; None where there is none."""
        model = self.anatomy
        with undisturbed(self.model, self.device):
            place = None if sharded(self.model) else first_bad.in_forward(model, self.inputs)
        bad = [] if place is not None else model.bad_weights()
        if bad:
            place = model.place(bad[0], self.params[bad[0]])
        if place is None:
            return None
        return first_bad.FirstBad("weight" if place.weight else "activation", place, step, model.count())

    def _losses(self, output: Any) -> dict[str, Any]:
        """The loss on text that nobody trains on, where there is any: given, or the kept one of an opened model."""
        if self.held_out is not None:
            return self._of_held_out(self.held_out)
        tokens = self.inputs.tokens
        logits = logits_of(output, tokens) if tokens is not None and self.facts["kind"] == "opened" else None
        if logits is None or tokens is None:
            return {}
        return fetch({"val_loss": probes.per_token_loss(logits.float(), tokens).mean()})

    def _of_held_out(self, held_out: HeldOut) -> dict[str, Any]:
        """The loss on the batches that were given; where it cannot be taken, a warning says so once."""
        try:
            with self.clamps.paused(False):
                return {"val_loss": held_out.loss(self.model, self.inputs)}
        except Exception as error:  # somebody's batches, and their model on these
            if sharded(self.model):  # the processes run it together: none may leave it out alone
                raise
            self.held_out = None
            why = str(error) if isinstance(error, CannotWatch) else f"{type(error).__name__}: {error}"
            say(f"held_out is left out from here on, everything else is recorded: {why}")
            return {}

    def _on_repeat(self, pictures: list[np.ndarray], with_patterns: bool) -> dict[str, Any]:
        """Probe R and its control: the scores that need repeats, and the losses when every token has logits."""
        assert self._repeat is not None and self._repeat.tokens is not None and self._period is not None
        watcher, tokens = self.watcher, self._repeat.tokens
        assert self._control is not None
        if self.no_heads:
            with self._seeing():
                return self._repeat_losses(self._repeat.run(self.model), tokens, self._period)
        watcher.rows, watcher.repeats = probes.second_copy(self._period), tokens
        watcher.own = None
        try:
            with watcher:
                self._control.run(self.model)
            control = watcher.arrays(with_errors(CONTROLS))
            watcher.own = self.own.measures.on("repeat")
            with watcher:
                output = self._repeat.run(self.model)
        finally:
            watcher.rows, watcher.repeats = FIRST_ROW_ON, None
        names = (*with_errors(REPEAT_MEASURES), *_own_names(watcher.own))
        row: dict[str, Any] = of_probes({}, watcher.arrays(names), control)
        if with_patterns:
            pictures.append(watcher.pictures(N_PROMPTS, self._width))
        return row | self._repeat_losses(output, tokens, self._period)

    def _on_own(self, probe: str, inputs: Inputs) -> dict[str, Any]:
        """The loss on a probe of the user's, when every token has logits, and what is measured of heads there."""
        watcher, tokens = self.watcher, inputs.tokens
        assert tokens is not None
        watcher.own, watcher.rows = self.own.measures.on(probe), slice(None)
        try:
            with self._seeing():
                output = inputs.run(self.model)
            row: dict[str, Any] = {} if self.no_heads else watcher.arrays(_own_names(watcher.own))
        finally:
            watcher.own, watcher.rows = None, FIRST_ROW_ON
        return row | fetch(loss_on(probe, logits_of(output, tokens), tokens))

    def _repeat_losses(self, output: Any, tokens: Tensor, period: int) -> dict[str, Any]:
        """Of Probe R, when every token has logits."""
        logits = logits_of(output, tokens)
        if logits is None:
            return {}
        loss = probes.per_token_loss(logits.float(), tokens)
        return fetch({
            "repeat_loss": probes.repeat_loss(loss, period), "first_copy_loss": probes.first_copy_loss(loss, period),
        })  # fmt: skip

    def _begin(self, step: int) -> None:
        """Know the model by its first pass, and make the run directory for what was seen of it."""
        layers, tokens = self.watcher.layers, self.watcher.tokens
        d_vocab, n = self.watcher.d_vocab, self.watcher.n_positions or None
        if self.no_heads:
            tokens, d_vocab = self._looked_up()
            n = None if tokens is None else tokens.shape[1]
        if d_vocab is not None:
            self.words.check(d_vocab)
        if tokens is not None and d_vocab is not None:
            self._make_repeat(tokens, d_vocab)
        for name, probe in self.own.probes.items():
            self._own_inputs |= self._own_call(name, probe, tokens, d_vocab)
        if self.no_heads:
            with torch.compiler.set_stance("force_eager"):
                self._blocks = stream.chain(self.model, lambda: self.inputs.run(self.model))
        else:
            self._know_heads(layers)
        self._began = True
        if self.ranks.rank:
            return
        prompts = {} if self.no_heads else self._prompts()
        depths = len(self._blocks) + 1 if self._blocks else 0
        seen = FirstLook(
            layers, self.no_heads, tokens, d_vocab, n, self._period, prompts, self._width, depths, self.own
        )
        place = RunDirectory(self.dir, self.model, self.inputs, self.words, self.facts, self.ranks)
        self.writer = place.begin(step, seen, str(self.device), self.begun, self._resumes)

    def _looked_up(self) -> tuple[Tensor | None, int | None]:
        """Of a model without heads: its tokens, as many rows as it was called with, and how many kinds there are."""
        found = self.watcher.looked_up
        if found is None or not batch_axis_first(self.model) or len(found[0]) != self.inputs.batch:
            return None, None
        return found

    def _know_heads(self, layers: list[Layer]) -> None:
        """Which weights and which part of the stream are whose, and how much is kept of patterns."""
        found = self.watcher.map
        self._find_split(found)
        self._blocks = stream.blocks(self.model, layers)
        if self.facts["kind"] == "watched" and not sharded(self.model):
            self.heads = head_weights.find(self.model, found, self.inputs, self.params)
        n_prompts = self.watcher.n_kept + (N_PROMPTS if self._repeat else 0)
        self._width = min(self.watcher.n_positions, _width(layers, n_prompts))

    def _find_split(self, found: DiscoveredAttention) -> None:
        """Over which processes are the heads split, if they are?"""
        if self.ranks.world == 1 or not sharded(self.model):
            return
        modules = {plain(name): module for name, module in self.model.named_modules()}
        groups: list[list[int] | None] = []
        with contextlib.ExitStack() as hooks, torch.compiler.set_stance("force_eager"):
            for module in (modules[name] for name, _ in found.keys if name in modules):
                hook = module.register_forward_hook(lambda module, *_: groups.append(split_over(module)))
                hooks.callback(hook.remove)
            self.inputs.run(self.model)
        if groups and groups[0] is not None:
            self.ranks.split = groups[0]

    def _make_repeat(self, tokens: Tensor, d_vocab: int) -> None:
        """Probe R, unless the model has cross attention or inputs that nobody could make up."""
        n = tokens.shape[1]
        size = min(d_vocab, self.words.size or d_vocab)
        if n < 4 or size < 3 or any(layer.kind == "cross" for layer in self.watcher.layers):
            return
        bos = self.words.bos if self.words.bos is not None and self.words.bos < d_vocab else 0
        probe = probes.repeated(size, n, bos, batch=PROBE_ROWS)
        made, control = (self.inputs.with_tokens(x.to(tokens)) for x in (probe.tokens, probe.control))
        if made is None:
            return
        try:
            with Watcher(self.model, keep=0) as trial:
                output = made.run(self.model)
            if not self.no_heads:
                trial.check()
            elif logits_of(output, probe.tokens) is None:  # else it would give nothing
                return
        except Exception:  # it takes inputs of one length only, say: then there is no Probe R
            return
        self._repeat, self._control, self._period = made, control, probe.period

    def _own_call(self, name: str, probe: Probe, seen: Tensor | None, d_vocab: int | None) -> dict[str, Inputs]:
        """The model's call on a probe of the user's; nothing, with a warning, where it does not run on it."""
        try:
            if seen is None or d_vocab is None:
                raise CannotWatch("it reads no tokens")
            made = self.inputs.with_tokens(probe.fitting(name, d_vocab, None).to(seen))
            if made is None:
                raise CannotWatch("it is called with more than tokens, and nobody can know the rest for others")
            with Watcher(self.model, keep=0) as trial:
                made.run(self.model)
            if not self.no_heads:
                trial.check()
        except Exception as error:  # the model's own, of rows that are too long, say
            say(f"nothing is recorded on the probe {name}: the model cannot be run on it ({error})")
            return {}
        return {name: made}

    def _prompts(self) -> dict[str, Sequence[int]]:
        """The kept sequences by name: their token ids, or nothing where the model reads none."""
        kept, tokens = self.watcher.n_kept, self.watcher.tokens
        text = [[]] * kept if tokens is None else tokens[:kept].tolist()
        repeat = None if self._repeat is None else self._repeat.tokens
        return kept_prompts(text, [] if repeat is None else repeat[:N_PROMPTS].tolist())


def _own_names(own: OwnRows | None) -> tuple[str, ...]:
    """Variables of a user's measures, with their standard errors."""
    return () if own is None else with_errors(own.names)


def _width(layers: list[Layer], n_prompts: int) -> int:
    heads = len(layers) * max(layer.n_heads for layer in layers)
    fits = [w for w in WIDTHS if 2 * n_prompts * heads * w * w <= PATTERN_ROW_BYTES]
    return fits[0] if fits else WIDTHS[-1]
