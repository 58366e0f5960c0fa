"""The pictures of the Gradients page: every tensor over training, and every head's four matrices at one step.

Streamlit mounts a Plotly chart anew whenever its figure changes, so a figure is kept while nothing that it shows
changes; in a live run it is kept for some seconds more, unless the reader's own choice changes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.shared.mount import draw
from dashboard.shared.plots import plot
from dashboard.views.gradients.norms import reach
from tracer.pictures import headmap

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from tracer.store import Run

KEEP_SECONDS = 10.0
ROOMY = 4
"""Up to so many heads a phone shows the numbers too, one table below the other."""


def draw_heads(
    values: np.ndarray, matrices: list[str], *, label: str, band: tuple[float, float] | None, focus: tuple[int, int]
) -> None:  # fmt: skip
    """values [layer head matrix], a table a matrix on one scale of colours; a click brings its head into focus."""
    low, high = reach(values, band)
    name = f"{label[0].upper()}{label[1:]}"
    scale = theme.Scale(name, lo=10.0**low, hi=10.0**high, palette="pace" if band else "score")
    narrow = values.shape[1] > ROOMY
    with st.container(key=f"head_grids{'_narrow' if narrow else ''}", gap="small"):
        for first in range(0, len(matrices), 2):
            for column, i in zip(st.columns(2), (first, first + 1), strict=True):
                with column:
                    _draw_matrix(values[..., i], f"W_{matrices[i]}", scale, focus, bare=i < len(matrices) - 1)


def _draw_matrix(values: np.ndarray, name: str, scale: theme.Scale, focus: tuple[int, int], *, bare: bool) -> None:
    there = bool(np.isfinite(values).any())
    picture = headmap.picture(
        values, title=name if there else f"{name}: this model has none", scale=scale, log=True, bare=bare,
        selected=focus if there else None,
    )  # fmt: skip
    draw(picture, key=f"heads_{name}", on_change=state.focus_on)


def plot_kept(key: str, figure: Callable[[], go.Figure], drawn_by: tuple[Hashable, ...], run: Run, alt: str) -> None:
    """`drawn_by`: the choices that the figure depends on, besides what the run has recorded."""
    kept = st.session_state.setdefault("pictures", {})
    drawn, now, signature = kept.get(key, {}), time.monotonic(), (run.name, *drawn_by)
    fresh = drawn.get("stamp") == run.stamp or run.live and now - drawn.get("at", -KEEP_SECONDS) < KEEP_SECONDS
    if drawn.get("signature") != signature or not fresh:
        drawn = kept[key] = {"signature": signature, "stamp": run.stamp, "at": now, "figure": figure()}
    plot(drawn["figure"], key=key, alt=alt)
