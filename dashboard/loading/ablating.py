"""Cached ablations for the Ablate page; the computing is `tracer.ablate`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import loading
from tracer.measures import MAX_PERIOD
from tracer.store import Run, open_run

if TYPE_CHECKING:
    from torch import Tensor

    from tracer.ablate import Estimate
    from tracer.probes import Probe

Head = tuple[int, int]
SMALL = 20_000_000
"""Parameters of a model that reads dozens of sequences in a moment."""


@dataclass(frozen=True)
class Setup:
    """What is switched off, where: the key of everything below."""

    run: str
    created: str
    step: int
    off: tuple[Head, ...]
    mode: str
    frozen: bool

    @classmethod
    def of(cls, run: Run, step: int, off: tuple[Head, ...], mode: str, frozen: bool) -> Setup:
        return cls(str(run.dir.resolve()), run.meta["created"], step, off, mode, frozen)

    @property
    def model(self) -> Any:
        return loading.model(open_run(self.run), self.step)


@dataclass(frozen=True)
class Batches:
    """The sequences that ablations are measured on."""

    repeat: Probe
    text: Tensor | None
    """None where the run kept no text of equal length."""
    note: str
    """Empty, or why it is not all of the run's held-out text."""
    title: str = "Held-out text"


@dataclass(frozen=True)
class Cost:
    """Mean loss on one probe before and after, the change with its interval, and the loss by loss position."""

    before: float
    after: float
    change: Estimate
    before_by_position: np.ndarray
    after_by_position: np.ndarray


def batches(run: str, created: str) -> Batches:
    return _batches(run, created)


@st.cache_resource(max_entries=16, show_spinner="Reading the held-out text …")
def _batches(run: str, created: str) -> Batches:
    from tracer import data, probes

    opened = open_run(run)
    about = opened.about
    if about.kind != "trained":
        assert about.d_vocab is not None  # only models of tokens are rebuilt
        n_ctx = about.n_ctx or 2 * MAX_PERIOD + 1
        repeat = probes.repeated(about.d_vocab, n_ctx, about.bos or 0, batch=_rows(opened))
        return Batches(repeat, _kept_text(opened), "the text it was trained on is not in the run", "Kept text")
    config = opened.config
    repeat = probes.repeated(opened.meta["d_vocab"], config.model.n_ctx, batch=config.record.repeat_rows)
    try:
        found = data.build(config.data, config.model.n_ctx, config.seed)
        if found.hash == opened.meta["corpus"]["hash"]:
            return Batches(repeat, found.val(config.record.val_rows), "")
        note = "the text it was trained on has changed since"
    except (ValueError, OSError):
        note = "the text it was trained on is not on this machine"
    return Batches(repeat, _kept_text(opened), note)


def _rows(run: Run) -> int:
    """Sequences of repeated tokens: fewer for a model whose forward pass takes seconds."""
    return 32 if run.meta["n_params"] <= SMALL else 8


def _kept_text(run: Run) -> Tensor | None:
    """The text among the kept prompts, cut to the shortest of them."""
    import torch

    trace = run.trace
    if "prompt_tokens" not in trace:
        return None
    names = [name for name in trace["prompt"].values if str(name).startswith("text")]
    tokens = np.asarray(trace["prompt_tokens"].sel(prompt=names).values, np.int64)
    shortest = int((tokens >= 0).sum(axis=1).min(initial=tokens.shape[1])) if names else 0
    return torch.from_numpy(tokens[:, :shortest].copy()) if shortest > 1 else None


def _sequences(found: Batches) -> list[tuple[str, Tensor, slice]]:
    """What is measured: name, tokens and loss positions."""
    text = [] if found.text is None else [("text", found.text, slice(None))]
    return [("repeat", found.repeat.tokens, found.repeat.predictable), *text]


@st.cache_data(max_entries=256, show_spinner=False)
def costs(setup: Setup) -> dict[str, Cost]:
    """The cost of switching heads off on `repeat` (predictable positions) and on `text` (all positions)."""
    from tracer.ablate import effect

    found, model = batches(setup.run, setup.created), setup.model
    results = {}
    for name, tokens, where in _sequences(found):
        e = effect(model, tokens, setup.off, setup.mode, frozen=setup.frozen)
        clean, ablated = e.clean.numpy(), e.ablated.numpy()
        results[name] = Cost(
            float(clean[:, where].mean()),
            float(ablated[:, where].mean()),
            e.over(where),
            clean.mean(0),
            ablated.mean(0),
        )
    return results


@st.cache_data(max_entries=64, show_spinner=False)
def clean(run: str, created: str, step: int) -> dict[str, float]:
    """Mean losses with every head on, by probe."""
    from tracer.ablate import averaged, inputs
    from tracer.probes import per_token_loss

    found, model = batches(run, created), loading.model(open_run(run), step)

    def loss(tokens: Tensor, where: slice) -> float:
        return float(averaged([[]], lambda: per_token_loss(model(inputs(model, tokens)), tokens)[:, where].mean()))

    return {name: loss(tokens, where) for name, tokens, where in _sequences(found)}


@st.cache_data(max_entries=256, show_spinner=False)
def induction(setup: Setup) -> tuple[np.ndarray, np.ndarray]:
    """The induction score of every head before and after, [layer head]."""
    from tracer.ablate import averaged, planner
    from tracer.inspect import induction as compute

    repeat, model = batches(setup.run, setup.created).repeat, setup.model

    def score() -> Tensor:
        return compute(model, repeat.tokens, repeat.second_copy)

    plans = planner(model, repeat.tokens, setup.mode, frozen=setup.frozen)(setup.off) if setup.off else [[]]
    return averaged([[]], score).numpy(), averaged(plans, score).numpy()


@st.cache_data(max_entries=256, show_spinner=False)
def on_prompt(setup: Setup, prompt: tuple[int, ...], position: int) -> dict[str, np.ndarray]:
    """On one prompt, `before` and `after`: `loss_*` of each token [pos], nan for the first, and `next_*` [d_vocab]."""
    import torch

    from tracer.ablate import averaged
    from tracer.inspect import next_token
    from tracer.probes import per_token_loss

    tokens, model, plans = torch.tensor([prompt]), setup.model, _prompt_plans(setup, prompt)
    results = {}
    for name, edits in (("before", [[]]), ("after", plans)):
        loss = averaged(edits, lambda: per_token_loss(model(tokens), tokens)[0]).numpy()
        results[f"loss_{name}"] = np.concatenate([[np.nan], loss])
        results[f"next_{name}"] = averaged(edits, lambda: next_token(model, tokens, position)).numpy()
    return results


@st.cache_data(max_entries=64, show_spinner=False)
def patterns(setup: Setup, prompt: tuple[int, ...], head: Head, last: int) -> tuple[np.ndarray, np.ndarray]:
    """One head's pattern on the last tokens of a prompt before and after, [query_pos key_pos]."""
    import torch

    from tracer.ablate import averaged
    from tracer.inspect import look

    tokens, model = torch.tensor([prompt]), setup.model
    shown = slice(max(0, len(prompt) - last), None)
    before, after = (
        averaged(edits, lambda: torch.from_numpy(look(model, tokens).window(*head, shown, shown))).numpy()
        for edits in ([[]], _prompt_plans(setup, prompt))
    )
    return (before, before) if setup.frozen else (before, after)


def _prompt_plans(setup: Setup, prompt: tuple[int, ...]) -> list[Any]:
    """Edits for one prompt: mean and resample take their replacements from the rows of text."""
    import torch

    from tracer.ablate import planner

    if not setup.off:
        return [[]]
    text = None if setup.mode == "zero" else batches(setup.run, setup.created).text
    return planner(setup.model, torch.tensor([prompt]), setup.mode, reference=text, frozen=setup.frozen)(setup.off)


@st.cache_data(max_entries=64, show_spinner="Switching off every head by itself …")
def sweep(run: str, created: str, step: int, mode: str, frozen: bool) -> dict[str, np.ndarray]:
    """The cost of each head by itself, [layer head], by probe."""
    from tracer.ablate import sweep as compute

    found, model = batches(run, created), loading.model(open_run(run), step)
    return {
        name: compute(model, tokens, mode, positions=where, frozen=frozen).values
        for name, tokens, where in _sequences(found)
    }
