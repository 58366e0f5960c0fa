"""Heads: what does every head look at, for any prompt, at any step?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading, measured, parts, state, theme
from dashboard.components.atlas import atlas
from dashboard.components.curves import curves
from dashboard.loading import kept, looking
from dashboard.loading.looking import Head, Sight
from dashboard.sections import patterns, prompts
from tracer.measures import HEAD_MEASURES, MEASURES
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

Seen = Callable[[], Sight]


def page() -> None:
    parts.heading("Heads", "What does every head look at: on your own text, at any step of training?")
    chooser, colour = st.columns([3, 2])
    with chooser:
        run = parts.choose_run()
    trace = _so_far(run)
    with colour:
        measure = _choose_measure(trace)
    see = _choose_text(run) if prompts.can_read(run) else _choose_kept(run)
    if see is None:
        return
    parts.tick(run, lambda: _draw(run, measure, see))
    with st.expander(f"What is “{MEASURES[measure].label}”?"):
        parts.explain(measure, run)


def _choose_text(run: Run) -> Seen:
    encoded = prompts.choose_text(run)
    return lambda: looking.of_text(run, parts.choose_step(run), encoded.tokens, encoded.strings)


def _choose_kept(run: Run) -> Seen | None:
    name = prompts.choose_kept(run)
    if name is None:
        parts.recorded(run)
        st.info(f"{prompts.why_not(run)}, and no patterns were kept.", icon=":material/visibility_off:")
        return None
    return lambda: kept.of_prompt(run, parts.choose_step(run, kept.prompts(run).steps), name)


def _draw(run: Run, measure: str, see: Seen) -> None:
    """The step and everything that depends on it; in a live run this moves along with the newest snapshot."""
    trace = parts.recorded(run)
    if trace is None:
        return
    try:
        sight = see()
    except ValueError as error:
        parts.refuse(str(error))
        return
    focus = parts.focus(trace, sight.step)
    left, right = st.columns([1, 1], gap="large")
    long = patterns.is_long(sight)
    with left:
        _draw_atlas(run, trace, sight, measure, focus)
    with right if long else left:
        _draw_history(run, trace, measure, focus, sight.step)
    if not long:
        with right:
            patterns.draw_whole(sight, focus)
        return
    left, right = st.columns([1, 1], gap="large")
    with left:
        patterns.draw_overview(sight, focus)
    with right:
        patterns.draw_window(sight, focus)


def _so_far(run: Run) -> xr.Dataset | None:
    """The trace, or None while there is none."""
    try:
        return loading.trace(run)
    except ValueError:
        return None


def _choose_measure(trace: xr.Dataset | None) -> str:
    offered = (measured.head_measures(trace) if trace is not None else []) or list(HEAD_MEASURES)
    wanted = [state.read().measure, "induction", *offered]
    state.show("measure_box", next(name for name in wanted if name in offered))
    return st.selectbox(
        "Colour heads by", offered, key="measure_box", format_func=lambda name: MEASURES[name].label,
        on_change=lambda: state.update(measure=st.session_state["measure_box"]),
    )  # fmt: skip


def _draw_atlas(run: Run, trace: xr.Dataset, sight: Sight, measure: str, focus: Head) -> None:
    """Thumbnails from the prompt; numbers from the run's own probes at the recorded step nearest to the snapshot."""
    st.subheader("All heads on this prompt", anchor=False)
    shown = MEASURES[measure]
    what = "token" if run.about.d_vocab is not None else "position"
    st.caption(f"A tile is a head: each row is a {what}, each column a {what} that it may look at. "
               f"The number is its {shown.label.lower()}, measured on {parts.probe(run, measure)}.")  # fmt: skip
    recorded = {name: measured.scores(trace, name, sight.step) for name in measured.head_measures(trace)}
    atlas(
        looking.atlas(sight, run.stamp, recorded), key="atlas", selected=focus, measure=measure,
        scales={name: parts.scale(name, run, values) for name, values in recorded.items()},
        on_change=lambda head: state.update(layer=head[0], head=head[1]),
    )  # fmt: skip


def _draw_history(run: Run, trace: xr.Dataset, measure: str, focus: Head, step: int) -> None:
    if trace.sizes["step"] == 1 and not run.live:
        return
    st.subheader(f"{MEASURES[measure].label} over training", anchor=False)
    curves(
        loading.head_curves(run, measure), key="history", selected=theme.head_label(*focus), step=step,
        scale=parts.scale(measure, run, trace[measure].values), height=240, on_change=_choose_head,
    )  # fmt: skip


def _choose_head(label: str | None) -> None:
    if label is not None:  # None: the chosen line was clicked again, and some head stays in focus
        layer, head = theme.parse_head(label)
        state.update(layer=layer, head=head)
