"""What a card says about a run, read from its files and cached until they change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import head_scores
from dashboard.loading.kept import AS_RECORDED
from dashboard.loading.rows import evenly
from tracer.diagnosis import early
from tracer.store import NothingRecorded, Run, stamps
from tracer.store.about import Kind
from tracer.store.choosing import last_values, settings
from tracer.store.housekeeping import note

if TYPE_CHECKING:
    import xarray as xr

POINTS = 80
"""Points of a sparkline."""
MOST_SETTINGS = 4096
"""Runs whose settings are kept."""
HELD_OUT, TRAINING = "held-out loss", "training loss"
LOSSES = {"val_loss": HELD_OUT, "train_loss": TRAINING}
"""What a run is told by, the first that it has."""
RECENT = 8
"""Speed is the median over this many records."""


@dataclass(frozen=True)
class Summary:
    """A run in a few numbers; nan, None and () for what is unknown or not recorded yet."""

    kind: Kind
    preset: str | None
    author: str
    """Class of a model that others wrote."""
    step: int
    steps: int | None
    loss: str
    """What its losses are, in words: held-out ones where they were recorded."""
    losses: tuple[float, ...]
    loss_step: int
    """Of the last of them."""
    best: tuple[int, int] | None
    """The strongest induction head, or what is nearest to one; where that is not measured the sharpest one."""
    stands_out: bool
    """Is its induction score above its control, where both were measured?"""
    induction: bool
    score: float
    """Its induction score, or its normalised entropy."""
    control: float
    """Beside that score: what it gives the same places where nothing repeats."""
    n_params: int
    megabytes: float
    created: datetime | None
    step_ms: float
    damaged: bool
    """Cannot its trace be read?"""
    heads: str
    """How many there are, in words: "2 × 4 heads"; empty while none were recorded."""
    early: bool
    """Has it too few records for a word on its loss, so for one on what its heads do not do?"""

    @property
    def share(self) -> float:
        """How much of the planned steps is done."""
        return min(1.0, self.step / self.steps) if self.steps else 1.0

    @property
    def seconds_left(self) -> float:
        return (self.steps - self.step) * self.step_ms / 1000 if self.steps else float("nan")


def summary(run: Run) -> Summary:
    """The summary as of now; a ValueError when the files do not hold what a run's files hold."""
    try:
        return _summary(run)
    except (KeyError, TypeError, AttributeError, OSError) as error:
        raise ValueError(
            f"{run.dir} is damaged or was not written by manyeyes ({type(error).__name__}: {error})"
        ) from error


@st.cache_data(max_entries=256, show_spinner=False, hash_funcs=AS_RECORDED)
def _summary(run: Run) -> Summary:
    meta, about = run.meta, run.about
    loss, losses, loss_step = TRAINING, (), 0
    step, best, score, step_ms, induction = int(meta["step"]), None, float("nan"), float("nan"), True
    control, damaged, stands_out, heads, too_few = float("nan"), False, False, "", False
    try:
        trace = loading.trace(run)
    except NothingRecorded:
        trace = None
    except ValueError:
        trace, damaged = None, True
    if trace is not None and trace.sizes["step"]:
        step, too_few = max(step, int(trace["step"][-1])), early(trace)
        if (name := next((one for one in LOSSES if head_scores.holds(trace, one)), None)) is not None:
            values = trace[name].values
            loss, losses = LOSSES[name], thinned(values)
            loss_step = int(trace["step"][np.flatnonzero(np.isfinite(values))[-1]])
        induction, step_ms = head_scores.holds(trace, "induction"), recent_ms(trace)
        if head_scores.head_measures(trace):
            exist = head_scores.head_exists(trace)
            heads = f"{len(exist)} × {exist.shape[1]} heads" if exist.all() else f"{exist.sum():,} heads"
            best = head_scores.default_head(trace)
            score = float(head_scores.head_means(trace, "induction" if induction else "entropy_normalised")[best])
            control = float(head_scores.head_means(trace, "induction_control")[best])
            stands_out = head_scores.induction_head(trace) is not None
    return Summary(
        about.kind, meta.get("preset"), about.author, step, about.steps, loss, losses, loss_step, best, stands_out,
        induction, score, control,
        int(meta["n_params"]), loading.size_mb(run), when(meta["created"]), step_ms, damaged,
        heads, too_few,
    )  # fmt: skip


def settings_of(run: Run) -> dict[str, Any]:
    """`tracer.store.choosing.settings` as of now; a ValueError or TypeError where run.json is damaged."""
    found = _settings(run)
    # what has ended stands as it did, and only of a run that trains the lock is asked
    status = run.status if found["status"] in ("training", "interrupted") else found["status"]
    return found | {"status": status, "note": note(run)}


_SETTINGS: dict[stamps.Stamp, dict[str, Any]] = {}


def _settings(run: Run) -> dict[str, Any]:
    """Kept without the host's cache, which takes longer to find what it keeps of a run than this to make it."""
    stamp = stamps.of_run(run.dir)
    if stamp is None:
        return settings(run)
    if stamp not in _SETTINGS:
        if len(_SETTINGS) >= MOST_SETTINGS:
            _SETTINGS.clear()
        _SETTINGS[stamp] = settings(run)
    return _SETTINGS[stamp]


@st.cache_data(max_entries=10_000, show_spinner="Reading what runs recorded …", hash_funcs=AS_RECORDED)
def recorded_last(run: Run, name: str) -> list[float]:
    """`tracer.store.choosing.last_values`."""
    return last_values(run, name)


def status_word(run: Run) -> str:
    """How the run stands; an opened model is not trained: its heads are measured, and then it is open."""
    words = {"training": "measuring", "finished": "opened"} if run.meta.get("kind") == "opened" else {}
    return words.get(run.status, run.status)


def recent_ms(trace: xr.Dataset) -> float:
    """Milliseconds of a step lately; nan where nobody timed them."""
    ms = trace["step_ms"].values[-RECENT:] if "step_ms" in trace else np.array([])
    return float(np.median(ms[np.isfinite(ms)])) if np.isfinite(ms).any() else float("nan")


def thinned(values: np.ndarray, most: int = POINTS) -> tuple[float, ...]:
    """At most so many finite values, evenly picked, the first and the last among them."""
    finite = np.asarray(values, float)[np.isfinite(values)]
    return tuple(finite[evenly(len(finite), most)].tolist())


def when(text: str) -> datetime | None:
    """The time in this machine's zone; None when the text is no time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (TypeError, ValueError, OverflowError):
        return None
