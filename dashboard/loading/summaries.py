"""What a card says about a run, read from its files and cached until they change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import streamlit as st

from dashboard import loading
from tracer.store import Run, open_run

POINTS = 80
"""Points of a sparkline."""
RECENT = 8
"""Speed is the median over this many records."""


@dataclass(frozen=True)
class Summary:
    """A run in a few numbers; nan and () for what is not recorded yet."""

    preset: str | None
    step: int
    steps: int
    losses: tuple[float, ...]
    best: tuple[int, int] | None
    score: float
    n_params: int
    megabytes: float
    created: datetime | None
    step_ms: float

    @property
    def share(self) -> float:
        """How much of the planned steps is done."""
        return min(1.0, self.step / self.steps) if self.steps else 1.0

    @property
    def seconds_left(self) -> float:
        return (self.steps - self.step) * self.step_ms / 1000


def summary(run: Run) -> Summary:
    """The summary as of now; a ValueError when the files do not hold what a run's files hold."""
    try:
        return _summary(str(run.dir.resolve()), run.stamp)
    except (KeyError, TypeError, AttributeError, OSError) as error:
        raise ValueError(
            f"{run.dir} is damaged or was not written by manyeyes ({type(error).__name__}: {error})"
        ) from error


@st.cache_data(max_entries=256, show_spinner=False)
def _summary(directory: str, stamp: str) -> Summary:
    run = open_run(directory)
    meta, config = run.meta, run.config
    step, losses, best, score, step_ms = int(meta["step"]), (), None, float("nan"), float("nan")
    try:
        trace = loading.trace(run)
    except ValueError:  # stopped before the first record
        trace = None
    if trace is not None and trace.sizes["step"]:
        step = max(step, int(trace["step"][-1]))
        losses = thinned(trace["train_loss"].values)
        induction = trace["induction"].values[-1]
        layer, head = np.unravel_index(int(np.nan_to_num(induction, nan=-1.0).argmax()), induction.shape)
        best, score = (int(layer), int(head)), float(induction[layer, head])
        ms = trace["step_ms"].values[-RECENT:]
        step_ms = float(np.median(ms[np.isfinite(ms)])) if np.isfinite(ms).any() else float("nan")
    return Summary(
        meta.get("preset"), step, config.steps, losses, best, score, int(meta["n_params"]), loading.size_mb(run),
        when(meta["created"]), step_ms,
    )  # fmt: skip


def thinned(values: np.ndarray) -> tuple[float, ...]:
    """At most POINTS finite values, evenly picked, the first and the last among them."""
    finite = np.asarray(values, float)[np.isfinite(values)]
    picks = np.unique(np.linspace(0, len(finite) - 1, min(POINTS, len(finite))).round().astype(int))
    return tuple(float(v) for v in finite[picks])


def when(text: str) -> datetime | None:
    """The time in this machine's zone; None when the text is no time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (TypeError, ValueError):
        return None
