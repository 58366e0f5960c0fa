"""Cached pictures of the loss by position, and what heads undo.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import ablation
from dashboard.loading.kept import AS_RECORDED, OF_A_STEP
from tracer.analysis import undoing
from tracer.analysis.undoing import Undoing
from tracer.measures import change_points
from tracer.measures.aliases import Head
from tracer.store import Run, nearest_row

CHEAP_FLOPS = 4e10
"""Forward passes that are run unasked for the effects of every head: about two seconds on one core."""
ROWS = 16
"""Sequences of held-out text, as most runs keep."""


@dataclass(frozen=True)
class LossByPosition:
    """Loss by position over training."""

    steps: np.ndarray
    values: np.ndarray
    """[step pos]"""

    def since(self, step: int) -> np.ndarray:
        """The row of a step, or of the recorded one next to it."""
        return self.values[nearest_row(self.steps, step)]


def losses(run: Run) -> LossByPosition | None:
    """None where the loss was not measured by position, or at one step or position only."""
    trace = loading.trace(run)
    if "loss_by_position" not in trace:
        return None
    values = np.asarray(trace["loss_by_position"].values, float)
    known = np.isfinite(values).all(axis=1)
    return LossByPosition(trace["step"].values[known], values[known]) if min(known.sum(), values.shape[1]) > 1 else None


@dataclass(frozen=True)
class Surface:
    """A quantity at each step and position."""

    steps: np.ndarray
    values: np.ndarray
    """[step pos]"""
    shown: np.ndarray
    """Those that its colours span."""


def surface(run: Run, quantity: str, less: int | None) -> Surface | None:
    """The "loss" or its "slope" at each step and position; `less` takes the row of that step off."""
    found = losses(run)
    if found is None:
        return None
    values = found.values if less is None else found.values - found.since(less)
    values = change_points.slope(values) if quantity == "slope" else values
    # the first fall would drown what came after
    return Surface(found.steps, values, values if less is None else values[found.steps >= less])


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs=AS_RECORDED)
def breadth(run: Run, window: tuple[int, int]) -> float:
    """The share of the whole path's width, its first component, that the steps of a window span."""
    found = losses(run)
    if found is None:
        return 0.0
    return change_points.breadth(found.values, (found.steps >= window[0]) & (found.steps <= window[1]))


@dataclass(frozen=True)
class Trajectory:
    """The way of the losses through a plane."""

    steps: np.ndarray
    points: np.ndarray
    """[step 2]"""
    shares: np.ndarray
    """Of the variance [2]."""


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs=AS_RECORDED)
def path(run: Run, since: int) -> Trajectory | None:
    """The principal components of the losses by position from a step on; None where fewer than 3 rows are left."""
    found = losses(run)
    if found is None or (found.steps >= since).sum() < 3:
        return None
    kept = found.steps >= since
    return Trajectory(found.steps[kept], *change_points.path(found.values[kept]))


def cheap(run: Run, n_heads: int) -> bool:
    """May so many heads be switched off unasked, on the held-out rows?"""
    tokens = ROWS * (run.about.n_ctx or 0)
    return 2 * run.meta["n_params"] * tokens * n_heads <= CHEAP_FLOPS


@st.cache_data(max_entries=64, show_spinner="Switching heads off at the end of the phase …", hash_funcs=OF_A_STEP)
def undone(run: Run, start: int, end: int, heads: tuple[Head, ...]) -> Undoing:
    """What switching each head off at the end does; ValueError where the run kept no text."""
    from tracer.ablate import losses as measure

    text = ablation.batches(run).text
    if text is None:
        raise ValueError("this run kept no text of equal length to switch heads off on")
    (before,) = measure(loading.model(run, start), text, [()]).numpy()
    after = measure(loading.model(run, end), text, [(), *((head,) for head in heads)]).numpy()
    return undoing.undoing(before, after)
