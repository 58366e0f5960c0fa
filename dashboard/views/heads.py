"""Heads: what does every head look at, for any prompt, at any step?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading, parts, state, theme
from dashboard.components import payload
from dashboard.components.atlas import atlas
from dashboard.components.curves import curves
from dashboard.components.pattern import pattern
from tracer.measures import HEAD_MEASURES, MEASURES, PROBES
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

    from tracer.data import Encoded

PATTERN_SIZE = 620


def page() -> None:
    parts.heading("Heads", "What does every head look at: on your own text, at any step of training?")
    chooser, colour = st.columns([3, 2])
    with chooser:
        run = parts.choose_run()
    with colour:
        measure = _choose_measure()
    encoded = parts.choose_prompt(run)
    parts.tick(run, lambda: _draw(run, measure, encoded))
    with st.expander(f"What is “{MEASURES[measure].label}”?"):
        parts.explain(measure, run)


def _draw(run: Run, measure: str, encoded: Encoded) -> None:
    """The step and everything that depends on it; in a live run this moves along with the newest snapshot."""
    trace = parts.recorded(run)
    if trace is None:
        return
    step = parts.choose_step(run)
    try:
        seen = loading.look(run, step, encoded.tokens)
    except ValueError as error:
        parts.refuse(str(error))
        return
    recorded = _recorded(trace, step)
    focus = parts.focus(run, recorded["induction"])
    left, right = st.columns([1, 1], gap="large")
    with left:
        _draw_atlas(run, seen["pattern"], recorded, measure, focus)
        _draw_history(run, trace, measure, focus, step)
    with right:
        _draw_pattern(seen, encoded.strings, focus)


def _choose_measure() -> str:
    selection = state.read()
    state.show("measure_box", selection.measure if selection.measure in HEAD_MEASURES else "induction")
    return st.selectbox(
        "Colour heads by", HEAD_MEASURES, key="measure_box", format_func=lambda name: MEASURES[name].label,
        on_change=lambda: state.update(measure=st.session_state["measure_box"]),
    )  # fmt: skip


def _recorded(trace: xr.Dataset, step: int) -> dict[str, np.ndarray]:
    """Each head measure on the run's own probes at the recorded step nearest to the snapshot, [layer head]."""
    row = trace.sel(step=step, method="nearest")
    return {name: row[name].values for name in HEAD_MEASURES}


def _draw_atlas(
    run: Run, patterns: np.ndarray, recorded: dict[str, np.ndarray], measure: str, focus: tuple[int, int]
) -> None:
    st.subheader("All heads on this prompt", anchor=False)
    shown = MEASURES[measure]
    st.caption("A tile is a head: each row is a token, each column a token that it may look at. "
               f"The number is its {shown.label.lower()}, measured on {PROBES[shown.probe]}.")  # fmt: skip
    atlas(
        payload.atlas(patterns, recorded), key="atlas", selected=focus, measure=measure,
        scales={name: parts.scale(name, run, values) for name, values in recorded.items()},
        on_change=lambda head: state.update(layer=head[0], head=head[1]),
    )  # fmt: skip


def _draw_pattern(seen: dict[str, np.ndarray], tokens: list[str], focus: tuple[int, int]) -> None:
    label = theme.head_label(*focus)
    st.subheader(f"{label} on this prompt", anchor=False)
    pattern(payload.pattern(seen["pattern"][focus], tokens, label=label), key="pattern", max_size=PATTERN_SIZE)


def _draw_history(run: Run, trace: xr.Dataset, measure: str, focus: tuple[int, int], step: int) -> None:
    st.subheader(f"{MEASURES[measure].label} over training", anchor=False)
    curves(
        loading.head_curves(run, measure), key="history", selected=theme.head_label(*focus), step=step,
        scale=parts.scale(measure, run, trace[measure].values), height=240, on_change=_choose_head,
    )  # fmt: skip


def _choose_head(label: str | None) -> None:
    if label is not None:  # None: the chosen line was clicked again, and some head stays in focus
        layer, head = theme.parse_head(label)
        state.update(layer=layer, head=head)
