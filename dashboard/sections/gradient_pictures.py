"""The Plotly pictures of the Gradients page, mounted so that they neither flicker nor lose a click.

Streamlit mounts a Plotly chart anew whenever its figure changes, so a figure is kept while nothing that it shows
changes; in a live run it is kept for some seconds more, unless the reader's own choice changes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.components.plotted import plotted
from dashboard.figures import norms

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from tracer.store import Run

KEEP_SECONDS = 10.0


def draw_history(
    steps: np.ndarray,
    values: np.ndarray,
    names: list[str],
    *,
    label: str,
    ratio: bool,
    chosen: str,
    step: int,
    run: Run,
) -> None:
    """Every tensor at every recorded step; `step` follows the newest row while nobody chose one."""
    dark = theme.is_dark()

    def figure() -> go.Figure:
        return norms.history(steps, values, names, label=label, ratio=ratio, dark=dark, chosen=chosen, step=step)

    asked = state.read().step
    _mount("tensor_picture", figure, (label, dark, chosen, asked), run, f"{label} of every tensor over training")
    plotted("tensor_picture", columns=["tensor", "step", label])


def draw_heads(values: np.ndarray, *, label: str, ratio: bool, focus: tuple[int, int], run: Run) -> None:
    """Every head's four matrices at one step; a click brings its head into focus."""
    dark = theme.is_dark()

    def figure() -> go.Figure:
        return norms.heads(values, label=label, ratio=ratio, dark=dark, chosen=focus)

    signature = (label, dark, focus, state.read().step)
    clicks = {"on_select": _take_head, "selection_mode": "points"}
    _mount("head_picture", figure, signature, run, f"{label} of W_Q, W_K, W_V and W_O of every head", **clicks)
    plotted("head_picture", columns=["head", "matrix", label], series=["W_Q", "W_K", "W_V", "W_O"])


def _take_head() -> None:
    points = st.session_state["head_picture"]["selection"]["points"]
    if points:
        state.update(layer=int(points[0]["y"]), head=int(points[0]["x"]))


def _mount(
    key: str, figure: Callable[[], go.Figure], signature: tuple[Hashable, ...], run: Run, alt: str, **options: Any
) -> None:
    kept = st.session_state.setdefault("pictures", {})
    drawn, now, signature = kept.get(key, {}), time.monotonic(), (run.name, *signature)
    fresh = drawn.get("stamp") == run.stamp or run.live and now - drawn.get("at", -KEEP_SECONDS) < KEEP_SECONDS
    if drawn.get("signature") != signature or not fresh:
        drawn = kept[key] = {"signature": signature, "stamp": run.stamp, "at": now, "figure": figure()}
    shown = drawn["figure"]
    with st.container(height=int(shown.layout.height), border=False, key=f"{key}_box"):  # nothing below moves meanwhile
        st.plotly_chart(shown, theme=None, key=key, config={"displayModeBar": False}, alt=alt, **options)
