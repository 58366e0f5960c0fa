"""Cached ablations for the Ablate page; the computing is `tracer.ablate`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading.kept import AS_RECORDED, OF_A_STEP, of_run
from tracer.measures import period
from tracer.measures.aliases import Head
from tracer.pictures.scales import Scale
from tracer.store import NothingRecorded, Run, open_run

if TYPE_CHECKING:
    import xarray as xr
    from torch import Tensor

    from tracer.ablate import Estimate, Null
    from tracer.analysis.eval_sequences import Batches

WORDS = {"repeat": "repeated tokens", "text": "text"}
"""What is measured on, in a sentence."""
SMALL = 20_000_000
"""Parameters of a model that reads dozens of sequences in a moment: the border of `tracer.analysis.eval_sequences`."""


@dataclass(frozen=True)
class Setup:
    """What is switched off, where: the key of everything below."""

    run: str
    job: str
    step: int
    off: tuple[Head, ...]
    mode: str
    frozen: bool

    @classmethod
    def of(cls, run: Run, step: int, off: tuple[Head, ...], mode: str, frozen: bool) -> Setup:
        return cls(*of_run(run), step, off, mode, frozen)

    @property
    def opened(self) -> Run:
        return open_run(self.run)

    @property
    def model(self) -> Any:
        return loading.model(self.opened, self.step)


@dataclass(frozen=True)
class Cost:
    """Mean loss on one probe before and after, the change with its interval, and the loss after by loss position."""

    before: float
    after: float
    change: Estimate
    after_by_position: np.ndarray


def is_large(run: Run) -> bool:
    """Does a forward pass of this model take so long that nothing more than the numbers is computed unasked?"""
    return run.meta["n_params"] > SMALL


@st.cache_resource(max_entries=16, show_spinner="Reading the held-out text …", hash_funcs=OF_A_STEP)
def batches(run: Run) -> Batches:
    from tracer.analysis.eval_sequences import batches as compute

    return compute(run)


def repeats(run: Run) -> bool:
    """Can tokens of this model repeat so that something foretells them? Asked on the first paint: reads no text."""
    about = run.about
    return about.d_vocab is not None and period(about.d_vocab, about.n_ctx or about.d_vocab) > 1


@st.cache_data(max_entries=256, show_spinner=False)
def costs(setup: Setup) -> dict[str, Cost]:
    """The cost of switching heads off, by probe: `repeat` (predictable positions), `text` (all positions)."""
    from tracer.ablate import Effect

    before = _clean(setup.opened, setup.step)
    sequences = batches(setup.opened).sequences(setup.mode)
    after = _ablated(setup, {name: tokens for name, tokens, _ in sequences}, setup.mode)

    def cost(name: str, where: slice) -> Cost:
        e = Effect(before[name], after[name])
        clean, ablated = e.clean.numpy(), e.ablated.numpy()
        means = float(clean[:, where].mean()), float(ablated[:, where].mean())
        return Cost(*means, e.over(where), ablated.mean(0))

    return {name: cost(name, where) for name, _, where in sequences}


def _ablated(setup: Setup, probes: dict[str, Tensor], mode: str) -> dict[str, Tensor]:
    """The loss of every next token of each probe with the heads off, [batch loss_pos].

    Each probe, and each half of the draws of resample, has a core of its own: the reader waits for the slowest.
    """
    import torch

    from tracer.ablate import BUDGET, DRAWS, losses

    model, half, found = setup.model, DRAWS // 2, batches(setup.opened)
    shares = ((0, DRAWS - half), (DRAWS - half, half)) if mode == "resample" else ((0, DRAWS),)
    jobs = [(name, seed, draws) for name in probes for seed, draws in shares]

    def share(job: tuple[str, int, int]) -> Tensor:
        name, seed, draws = job
        (after,) = losses(
            model, probes[name], [setup.off], mode, reference=found.reference(name, mode), frozen=setup.frozen,
            draws=draws, seed=seed, budget=BUDGET // len(jobs),
        )  # fmt: skip
        return after * (draws / DRAWS)

    with ThreadPoolExecutor(len(jobs)) as pool:
        done = list(zip(jobs, pool.map(share, jobs), strict=True))
    return {name: torch.stack([part for (of, *_), part in done if of == name]).sum(0) for name in probes}


@st.cache_data(max_entries=256, show_spinner=False)
def by_replacement(setup: Setup) -> dict[str, Estimate]:
    """The change in the main loss, by what is put in place of the heads: all that this loss can be measured with."""
    from tracer.ablate import Effect

    found = batches(setup.opened)
    name, tokens, where = found.main(setup.mode)
    before = _clean(setup.opened, setup.step)[name]

    def change(mode: str) -> Estimate:
        return Effect(before, _ablated(setup, {name: tokens}, mode)[name]).over(where)

    return {mode: costs(setup)[name].change if mode == setup.mode else change(mode) for mode in found.modes}


@st.cache_data(max_entries=64, show_spinner="Switching off random sets …")
def null(setup: Setup, n: int) -> Null:
    """The change in the main loss beside that of n random sets with as many heads in each layer."""
    from tracer.ablate import Loss
    from tracer.ablate import null as compute

    found = batches(setup.opened)
    name, tokens, where = found.main(setup.mode)
    return compute(
        setup.model, tokens, setup.off, setup.mode, n=n, metric=Loss(where),
        reference=found.reference(name, setup.mode), frozen=setup.frozen,
    )  # fmt: skip


def clean(run: Run, step: int) -> dict[str, float]:
    """Mean losses with all heads on, by probe."""
    found = _clean(run, step)
    return {name: float(found[name][:, where].mean()) for name, _, where in batches(run).sequences()}


def first_seen(run: Run, step: int) -> float | None:
    """Mean loss with all heads on of tokens that stand there for the first time; None where nothing repeats."""
    from tracer.data.probes import new_tokens

    if not repeats(run):
        return None
    return float(_clean(run, step)["repeat"][:, new_tokens(batches(run).repeat.period)].mean())


def clean_by_position(run: Run, step: int) -> dict[str, np.ndarray]:
    """Mean losses with all heads on by loss position, by probe."""
    return {name: losses.mean(0).numpy() for name, losses in _clean(run, step).items()}


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=OF_A_STEP)
def _clean(run: Run, step: int) -> dict[str, Tensor]:
    """The loss of every next token with all heads on, by probe: [batch loss_pos]; read, never changed."""
    from tracer.ablate import losses

    found, model = batches(run), loading.model(run, step)
    return {name: losses(model, tokens, [()]).squeeze(0) for name, tokens, _ in found.sequences()}


@st.cache_data(max_entries=256, show_spinner=False)
def induction(setup: Setup) -> tuple[np.ndarray, np.ndarray]:
    """The induction score of every head before and after, patterns free to change, [layer head]."""
    from tracer.ablate import averaged, planner
    from tracer.analysis.prompt_attention import induction as compute

    found, model = batches(setup.opened), setup.model
    repeat, reference = found.repeat, found.reference("repeat", setup.mode)

    def score() -> Tensor:
        return compute(model, repeat.tokens, repeat.second_copy)

    off = planner(model, repeat.tokens, setup.mode, reference=reference)
    plans = off(setup.off) if setup.off else [[]]
    return averaged([[]], score).numpy(), averaged(plans, score).numpy()


@st.cache_data(max_entries=256, show_spinner=False)
def on_prompt(setup: Setup, prompt: tuple[int, ...], position: int) -> dict[str, np.ndarray]:
    """On one prompt, `before` and `after`: `loss_*` of each token [pos], nan for the first, and `next_*` [d_vocab]."""
    import torch

    from tracer.ablate import averaged
    from tracer.analysis.prompt_attention import next_token
    from tracer.data.probes import per_token_loss

    tokens, model, results = torch.tensor([prompt]), setup.model, {}
    for name, edits in (("before", [[]]), ("after", _prompt_plans(setup, prompt))):
        loss = averaged(edits, lambda: per_token_loss(model(tokens), tokens).squeeze(0)).numpy()
        results[f"loss_{name}"] = np.concatenate([[np.nan], loss])
        results[f"next_{name}"] = averaged(edits, lambda: next_token(model, tokens, position)).numpy()
    return results


@st.cache_data(max_entries=64, show_spinner=False)
def patterns(setup: Setup, prompt: tuple[int, ...], head: Head, last: int) -> tuple[np.ndarray, np.ndarray]:
    """One head's pattern on the last tokens of a prompt before and after, [query_pos key_pos]."""
    import torch

    from tracer.ablate import averaged
    from tracer.analysis.prompt_attention import look

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
    found = batches(setup.opened)
    text = {"zero": None, "mean": found.wide.get("text", found.text)}.get(setup.mode, found.text)
    return planner(setup.model, torch.tensor([prompt]), setup.mode, reference=text, frozen=setup.frozen)(setup.off)


@dataclass(frozen=True)
class Swept:
    """What each head costs by itself, [layer head]: the change in loss, the ends of its 95 % interval, and marks."""

    effect: np.ndarray
    low: np.ndarray
    high: np.ndarray
    corrected: np.ndarray
    """Is the change not 0 at a level of 5 %, although so many heads were tried (Holm 1979)?"""
    too_few: str = ""
    """In words, why no head of so few sequences can be left after that correction; empty where one can."""

    @property
    def sure(self) -> np.ndarray:
        """Does the interval of this one head exclude 0?"""
        return (self.low > 0) | (self.high < 0)


@st.cache_data(max_entries=64, show_spinner="Switching off every head by itself …", hash_funcs=OF_A_STEP)
def sweep(run: Run, step: int, mode: str, frozen: bool) -> dict[str, Swept]:
    """The cost of each head by itself, by probe."""
    from tracer.ablate import sweep as compute

    found, model = batches(run), loading.model(run, step)

    def swept(name: str, tokens: Tensor, where: slice) -> Swept:
        reference = found.reference(name, mode)
        table = compute(model, tokens, mode, positions=where, reference=reference, frozen=frozen, interval=True)
        effect, low, high, p_holm = (table[name].values for name in ("effect", "low", "high", "p_holm"))
        return Swept(effect, low, high, p_holm < 0.05, table["p_holm"].attrs["note"])

    return {name: swept(name, tokens, where) for name, tokens, where in found.sequences(mode)}


def change_scale(*effects: np.ndarray) -> Scale:
    """Of all these changes in loss, with 0 in the middle; of a model that broke they may all be nan."""
    sizes = np.abs(np.concatenate([effect.ravel() for effect in effects]))
    top = float(np.max(sizes[np.isfinite(sizes)], initial=0.0))
    return Scale("Change in loss", "nats", -top or -1.0, top or 1.0, "change", 2 if top >= 0.2 else 3)


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=AS_RECORDED)
def effects(run: Run) -> xr.Dataset | None:
    """What `tracer sweep` has committed, in memory; None before its first row, ValueError where it is damaged."""
    try:
        return run.effects.load()
    except NothingRecorded:
        return None


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=AS_RECORDED)
def own_effects(run: Run) -> dict[str, xr.Dataset]:
    """What was swept by other metrics or on other tokens, by name, in memory; ValueError where it is damaged."""
    return {name: found.load() for name, found in run.own_effects.items()}


def swept(run: Run) -> int:
    """Snapshots that were swept in every mode that this run can be."""
    found = effects(run)
    if found is None or "effect" not in found:
        return 0
    swept_in = set(found["mode"].values.tolist())
    if len(swept_in) < 3 and not set(batches(run).modes) <= swept_in:  # whose text is read only where it matters
        return 0
    there = found["effect"].notnull().any(["probe", "layer", "head"]).all("mode")
    return len(set(map(int, found["step"].values[there.values])) & set(run.steps))
