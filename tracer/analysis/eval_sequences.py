"""The sequences that the heads of a run are switched off on: repeated tokens, and text the run did not train on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from tracer import data
from tracer.data import probes
from tracer.interventions.replacements import MODES, MORE
from tracer.measures import MAX_PERIOD

if TYPE_CHECKING:
    from tracer.store import Run

SMALL = 20_000_000
"""Parameters of a model that reads dozens of sequences in a moment."""


class Sequences(NamedTuple):
    """One batch to measure on."""

    name: str
    """`repeat` or `text`."""
    tokens: Tensor
    where: slice
    """The loss positions that count."""


@dataclass(frozen=True)
class Batches:
    """Probe R, and rows of text of equal length."""

    repeat: probes.ProbeR
    text: Tensor | None
    """None where the run kept no text of equal length."""
    note: str
    """Empty, or why it is not all of the run's held-out text."""
    title: str = "Held-out text"
    wide: dict[str, Tensor] = field(default_factory=dict)
    """By name, MORE times as many sequences, from which means are taken; else those of the others in the batch.

    Those of `repeat` repeat nothing, and resample draws from them, too: where all sequences repeat, a head that only
    says so writes the same in all, and to put one in place of another would not switch it off.
    """
    counted: slice = field(default_factory=lambda: slice(None))
    """The loss positions of `text` that count."""

    def reference(self, name: str, mode: str) -> Tensor | None:
        """The reference batch of an ablation of `repeat` or `text`; None: the sequences themselves."""
        return self.wide.get(name) if mode == "mean" or (mode == "resample" and name == "repeat") else None

    def sequences(self, mode: str = "zero") -> list[Sequences]:
        """What is measured: text alone where so short a context or vocabulary repeats a single token, foretold by none.

        Not with a `mode` that takes from other sequences what there are no others of. Errors: ValueError where nothing
        is left.
        """
        if found := self._found(mode):
            return found
        if self._found("zero"):
            raise ValueError(f"this run has 1 sequence to measure on, and {mode} takes what stands in from others")
        raise ValueError(
            "heads are switched off on tokens that repeat, for which n_ctx and d_vocab must be 7 or more, or on text, "
            "of which this run kept none; tracer.ablate.effect takes any tokens"
        )

    def main(self, mode: str = "zero") -> Sequences:
        """What an effect is of, where it is of one batch: tokens that repeat, as far as there are any."""
        return self.sequences(mode)[0]

    @property
    def modes(self) -> list[str]:
        """Those that anything can be measured with."""
        return [mode for mode in MODES if self._found(mode)]

    def _found(self, mode: str) -> list[Sequences]:
        found = []
        if self.repeat.period > 1:
            found.append(Sequences("repeat", self.repeat.tokens, self.repeat.predictable))
        if self.text is not None:
            found.append(Sequences("text", self.text, self.counted))
        return [
            one for one in found
            if mode == "zero" or len(one.tokens) > 1 or self.reference(one.name, mode) is not None
        ]  # fmt: skip


def batches(run: Run) -> Batches:
    """The same sequences for every snapshot of a run."""
    about = run.about
    if why_not := about.why_not("held_out"):
        assert about.d_vocab is not None  # only models of tokens are rebuilt
        n_ctx = about.n_ctx or 3 * MAX_PERIOD + 1
        rows = 32 if run.meta["n_params"] <= SMALL else 8  # a forward pass of a large model takes seconds
        repeat, wide = _repeated(about.d_vocab, n_ctx, about.bos or 0, rows)
        if kept := _kept_rows(run):
            return Batches(repeat, kept[0], "", "Held-out rows", wide, kept[1])
        return Batches(repeat, _kept_text(run), why_not, "Kept text", wide)
    config = run.config
    repeat, wide = _repeated(run.meta["d_vocab"], config.model.n_ctx, about.bos or 0, config.record.repeat_rows)
    try:
        found = data.build(config.data, config.model.n_ctx, config.seed)
        if found.hash == run.corpus_hash:
            text, wider = (found.val(n * config.record.val_rows) for n in (1, MORE))
            counted = found.counted(text)
            where = slice(None) if counted is None else _span(counted.numpy())
            return Batches(repeat, text, "", wide=wide | {"text": wider}, counted=where)
        note = "the text it was trained on has changed since"
    except (ValueError, OSError):
        note = "the text it was trained on is not on this machine"
    return Batches(repeat, _kept_text(run), note, wide=wide)


def _repeated(d_vocab: int, n_ctx: int, bos: int, n: int) -> tuple[probes.ProbeR, dict[str, Tensor]]:
    wide = probes.repeated(d_vocab, n_ctx, bos, batch=MORE * n, seed=probes.PROBE_SEED + 1)
    return probes.repeated(d_vocab, n_ctx, bos, batch=n), {"repeat": wide.control}


def _kept_rows(run: Run) -> tuple[Tensor, slice] | None:
    """The held-out rows of a run whose data is somebody's own, and which loss positions count."""
    trace = run.trace
    if "held_out_tokens" not in trace or "held_out_counted" not in trace:
        return None
    tokens, counted = (np.asarray(trace[f"held_out_{name}"].values) for name in ("tokens", "counted"))
    if tokens.ndim != 2 or tokens.dtype.kind not in "iu" or counted.shape != (len(tokens), tokens.shape[1] - 1):
        raise ValueError(
            f"{run.name} keeps held-out rows {list(tokens.shape)} and {list(counted.shape)} of them: damaged"
        )
    return torch.from_numpy(tokens.astype(np.int64)), _span(counted.astype(bool))


def _span(counted: Bool[np.ndarray, "row pos"]) -> slice:
    """The positions that count in every row, where they are the same in all and stand together; else all."""
    places = np.flatnonzero(counted.any(0))
    if not len(places) or not counted[:, places[0] : places[-1] + 1].all():
        return slice(None)
    return slice(int(places[0]), int(places[-1]) + 1)


def _kept_text(run: Run) -> Tensor | None:
    """The text among the kept prompts, cut to the shortest of them."""
    trace = run.trace
    if "prompt_tokens" not in trace:
        return None
    names = [name for name in trace["prompt"].values if str(name).startswith("text")]
    tokens = np.asarray(trace["prompt_tokens"].sel(prompt=names).values, np.int64)
    shortest = int((tokens >= 0).sum(axis=1).min(initial=tokens.shape[1])) if names else 0
    return torch.from_numpy(tokens[:, :shortest].copy()) if shortest > 1 else None
