"""Cached readings of the specimens' runs: which run is which specimen, what came of it, and the lines that show it.

Losses can only be compared between runs of one setting, so runs are kept apart by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from dashboard import loading, shipped, theme
from dashboard.loading import head_scores, prompt_attention, recorded_prompts, rows
from dashboard.loading.kept import AS_RECORDED
from dashboard.loading.run_summaries import thinned
from tracer.config import TrainConfig
from tracer.measures.chance import uniform_entropy
from tracer.measures.setting import Setting
from tracer.pictures import atlas, curves, pattern
from tracer.pictures.montage import montage
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.pictures.scales import EVEN
from tracer.presets import PRESETS
from tracer.specimens.paper_verdicts import ClaimAnswer, SeedAnswer, ask, decide
from tracer.specimens.system_figures import Outcome, outcome
from tracer.specimens.systems import Check, System
from tracer.specimens.tutorials import CLAIMS, SPECIMENS, TRAINED
from tracer.store import Run

MADE_BY = ("n_layers", "n_heads", "attn_scale", "attn_out", "residual", "norm")
"""What makes a specimen, whatever its size: a run that changed one of these is another system."""
DONE = ("finished", "diverged")
OF_PRESET = {preset: name for name, run in TRAINED.items() for preset in (name, run.preset)}


@dataclass(frozen=True)
class LossSetting:
    """What runs must share for their losses to be compared."""

    d_model: int
    n_ctx: int
    batch: int
    lr: float
    d_vocab: int
    corpus: str
    seed: int

    @property
    def text(self) -> str:
        """In words; the corpus may be a path of its author, so this is text and never Markdown."""
        return (
            f"{self.d_model} wide, context {self.n_ctx}, batches of {self.batch:,}, learning rate {self.lr!r}, "
            f"{self.corpus}, {self.d_vocab:,} tokens, seed {self.seed}"
        )


def trained(runs: Iterable[Run], series: Collection[str] = tuple(TRAINED)) -> dict[LossSetting, dict[str, Run]]:
    """Runs of these specimens by setting and name, the setting of most first; of several, the newest that ended."""
    found: dict[LossSetting, dict[str, Run]] = {}
    for run in runs:
        known = _setting(run)
        if known is None or known[1] not in series:
            continue
        setting, name = known
        others = found.setdefault(setting, {})
        if name not in others or (others[name].status not in DONE and run.status in DONE):
            others[name] = run
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def with_shipped(own: dict[LossSetting, dict[str, Run]], series: Collection[str]) -> dict[LossSetting, dict[str, Run]]:
    """The shipped runs fill in what was not trained here in their setting, which comes last where nothing was."""
    found = dict(own)
    for setting, runs in trained(shipped.specimens(), series).items():
        found[setting] = runs | own.get(setting, {})
    return found


def _setting(run: Run) -> tuple[LossSetting, str] | None:
    meta = run.meta
    name = OF_PRESET.get(str(meta.get("preset")))
    if name is None or meta.get("parent"):
        return None
    try:
        config = run.config
        if config.clamp or _made(config) != _made(PRESETS[name].config):
            return None
        model, optim = config.model, config.optim
        return (
            LossSetting(
                model.d_model, model.n_ctx, optim.batch_size, optim.lr, int(meta["d_vocab"]), config.data.corpus,
                config.seed,
            ),
            name,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):  # a damaged run is told of on Runs
        return None


def _made(config: TrainConfig) -> tuple[object, ...]:
    full_rank = config.model.d_head == config.model.d_model
    return (*(getattr(config.model, field) for field in MADE_BY), full_rank and config.model.n_heads > 1)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def result(run: Run) -> Outcome | None:
    """What the run has come to; None before its first record, or when its trace cannot be read."""
    try:
        return outcome(run)
    except (ValueError, KeyError, IndexError, OSError, RuntimeError):
        return None


def outcomes(runs: Mapping[str, Run]) -> dict[str, Outcome]:
    """Of those that are done."""
    found = {name: result(run) for name, run in runs.items() if run.status in DONE}
    return {name: one for name, one in found.items() if one is not None}


def previous_share(run: Run) -> float:
    """Share of attention on the token before at the end, mean over heads; nan where it is not known."""
    try:
        shares = loading.trace(run)["previous_token"].values.reshape(loading.trace(run).sizes["step"], -1)
    except (ValueError, KeyError):
        return float("nan")
    known = shares[np.isfinite(shares).all(axis=1)]
    return float(known[-1].mean()) if len(known) else float("nan")


def readings(runs: Mapping[str, Run]) -> list[ClaimAnswer]:
    """Every claim over the runs of one setting."""
    found, made = outcomes(runs), []
    for claim in CLAIMS:
        missing = [name for name in claim.needs if name not in found]
        why = f"waits for {' and '.join(missing)}" if missing else ""
        if not missing and len({found[name].step for name in claim.needs if found[name].status == "finished"}) > 1:
            told = " and ".join(f"{found[name].step:,}" for name in claim.needs)
            why = f"trained for {told} steps: not comparable"
        if why:
            made.append(ClaimAnswer(claim, "not tested", why, {}, 0, 0))
        else:
            made.append(decide(claim, {0: _asked(claim.text, {name: runs[name] for name in claim.needs})}))
    return made


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def _asked(text: str, runs: dict[str, Run]) -> SeedAnswer:
    return ask(next(claim for claim in CLAIMS if claim.text == text), runs)


def answered(name: str, runs: Mapping[str, Run]) -> list[Check]:
    """What the runs of one setting that are done say to the questions of a specimen's author."""
    done = {key: run for key, run in runs.items() if run.status in DONE}
    return _answered(name, done) if SPECIMENS[name].answers else []


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=AS_RECORDED)
def _answered(name: str, runs: dict[str, Run]) -> list[Check]:
    answers = SPECIMENS[name].answers
    assert answers is not None
    try:
        return [*answers([runs])]
    except (ValueError, KeyError, IndexError, OSError, RuntimeError):  # a damaged run is told of on Runs
        return []


@dataclass(frozen=True)
class Lines:
    """A run's curves, packed."""

    entropy: bytes
    looks: bytes
    loss: bytes
    n_heads: int


POINTS = 48
"""Of a line that is small."""


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def course(run: Run) -> dict[str, tuple[float, ...]]:
    """From first to last, in thousandths of a nat: the mean entropy of its heads, and the loss; what can be read."""
    try:
        trace = run.trace
        of = {"entropy": trace["entropy"].values, "training loss": trace["train_loss"].values}
    except (ValueError, KeyError, OSError, RuntimeError):
        return {}
    found = {}
    for name, values in of.items():
        means = values.reshape(len(values), -1).mean(axis=1)
        found[name] = tuple(round(mean, 3) for mean in thinned(means, POINTS))
    return found


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def lines(run: Run) -> Lines:
    """Entropy of every head, where heads look on average, and the losses; ValueError where the trace has no row."""
    trace = loading.trace(run)
    needed = ("entropy", "current_token", "previous_token", "train_loss")
    if missing := [name for name in needed if not head_scores.holds(trace, name)]:
        raise ValueError(f"{run.name} holds no {', '.join(missing)}")
    steps, entropy = trace["step"].values, trace["entropy"].values
    n_layers, n_heads = entropy.shape[1:]
    labels = [f"L{layer}H{head}" for layer in range(n_layers) for head in range(n_heads)]
    layers = [f"layer {layer}" for layer in range(n_layers)] if n_layers > 1 else ["heads" if n_heads > 1 else "head"]
    uniform = np.full(len(steps), uniform_entropy(Setting(run.config.model.n_ctx, 0, 0)))
    packed = curves.pack(
        steps, np.vstack([entropy.reshape(len(steps), -1).T, uniform]), [*labels, EVEN],
        groups=[*(i // n_heads for i in range(len(labels))), n_layers], group_names=[*layers, EVEN],
        n_layers=n_layers,
    )  # fmt: skip
    shares = [trace[name].values.reshape(len(steps), -1).mean(axis=1) for name in ("current_token", "previous_token")]
    looks = curves.pack(steps, shares, ["own token", "previous"])
    held = [(label, trace[name].values) for name, label in (("train_loss", "train"), ("val_loss", "held-out"))
            if head_scores.holds(trace, name)]  # fmt: skip
    losses = np.array([values for _, values in held])
    loss = curves.pack(steps, losses, [label for label, _ in held], log_y=rows.wide_range(losses))
    return Lines(packed, looks, loss, len(labels))


@dataclass(frozen=True)
class End:
    """Every head on the run's first kept prompt, at one end of training."""

    step: int
    alone: bool
    """Is there one head only?"""
    atlas: bytes


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def ends(run: Run) -> list[End]:
    """The first step at which patterns were kept, and the last; [] where none were."""
    return [
        End(shown.step, shown.thumbs.shape[:2] == (1, 1), prompt_attention.atlas(shown, "", {})) for shown in _ends(run)
    ]


def _ends(run: Run) -> list[PromptPatterns]:
    prompts = recorded_prompts.prompts(run)
    steps = dict.fromkeys([*prompts.steps[:1], *prompts.steps[-1:]])
    return [recorded_prompts.of_prompt(run, step, prompts.names[0]) for step in steps]


def small_ends(run: Run, dark: bool) -> list[tuple[int, bytes]]:
    """Every head at both ends of training as one small image each, with its step; [] where none can be read."""
    try:
        return _small_ends(run, dark)
    except (ValueError, KeyError, OSError, RuntimeError):
        return []


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def _small_ends(run: Run, dark: bool) -> list[tuple[int, bytes]]:
    return [(shown.step, montage(shown.thumbs, dark=dark)) for shown in _ends(run)]


@dataclass(frozen=True)
class Changed:
    """The head of a run whose pattern changed most on its first kept prompt, as an image a step."""

    label: str
    images: tuple[tuple[int, bytes], ...]


def most_changed(run: Run, dark: bool) -> Changed | None:
    """Of the first and the last step at which patterns were kept, or of the only one; None where none can be read."""
    try:
        return _most_changed(run, dark)
    except (ValueError, KeyError, IndexError, OSError, RuntimeError):
        return None


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def _most_changed(run: Run, dark: bool) -> Changed | None:
    shown = _ends(run)
    moved = np.nan_to_num(np.abs(shown[-1].thumbs - shown[0].thumbs)).sum((-2, -1))
    layer, head = map(int, np.unravel_index(moved.argmax(), moved.shape))
    images = [(one.step, montage(one.thumbs[layer : layer + 1, head : head + 1], dark=dark)) for one in shown]
    return Changed(theme.head_label(layer, head), tuple(images))


def published_entropy(specimen: System) -> float | None:
    """At the end, over rows q >= 1 as ours: its author's mean has row 0 of 32 in it, which is 0."""
    return None if specimen.entropy is None else specimen.entropy[1] * 32 / 31


def is_small(setting: LossSetting, name: str = "single-head") -> bool:
    """Is it the setting in which `tracer reproduce` trains this specimen?"""
    config = PRESETS[f"{name}-small"].config
    return replace(setting, d_vocab=0, seed=0) == LossSetting(
        config.model.d_model, config.model.n_ctx, config.optim.batch_size, config.optim.lr, 0, config.data.corpus, 0
    )


FEW = 8
"""Tokens up to which each head has a picture of its own, with the words beside it."""


@dataclass(frozen=True)
class Ran:
    """An exercise that was run, with its heads packed for drawing."""

    checks: tuple[Check, ...]
    patterns: np.ndarray
    """Of each head [head query_pos key_pos]."""
    atlas: bytes
    heads: tuple[bytes, ...]
    """Each head with the words of the input; none where those are many."""
    labels: tuple[str, ...]
    """A head's name and its mean row entropy."""

    @property
    def came(self) -> tuple[str, str]:
        """A verdict, and how many of its checks hold, in words."""
        held = sum(one.holds is True for one in self.checks)
        failed = any(one.holds is False for one in self.checks)
        return "fails" if failed else "holds", f"{held} of {len(self.checks)} checks"


@st.cache_data(show_spinner=False)
def ran(name: str) -> Ran:
    """The exercise of a specimen, which reads what never changes."""
    import torch

    from tracer.heads.definitions import entropy

    exercise = SPECIMENS[name].exercise
    assert exercise is not None
    done = exercise()
    names = [theme.head_label(0, head) for head in range(len(done.pattern))]
    few = len(done.strings) <= FEW
    heads = [pattern.pack(p, done.strings, label=label) for p, label in zip(done.pattern, names, strict=True)]
    entropies = entropy(torch.from_numpy(done.pattern)).mean(-1).tolist()
    labels = [f"{label}, entropy {value:.2f}" for label, value in zip(names, entropies, strict=True)]
    return Ran(
        done.checks, done.pattern, atlas.pack(done.pattern[None], {}), tuple(heads) if few else (), tuple(labels)
    )
