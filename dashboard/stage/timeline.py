"""The timeline of a run, which chooses the step: its loss, the head in focus, what happened; with a film, all heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import course, head_scores, prompt_film, recorded_prompts
from dashboard.shared import choosers, prompts
from dashboard.shared.mount import draw, serve
from dashboard.streamlit_internals import lasting
from tracer.measures.aliases import Head
from tracer.pictures import scrubber
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr
    from streamlit.delta_generator import DeltaGenerator


def choose_record(run: Run) -> None:
    """The step in force of every record, with the timeline that chooses it.

    Until somebody chooses, it is the last one (the newest of a live run).
    """
    if (trace := loading.so_far(run)) is None:
        return
    steps = trace["step"].values.tolist()
    choosers.settle_step(steps)
    if len(steps) > 1:
        with make_room(steps):
            draw_timeline(run, steps)


def begin(run: Run, steps: list[int]) -> DeltaGenerator | None:
    """Settle the step of a page; returned is the place of its timeline, None where one step needs none.

    Ends the page of a run that has no step yet.
    """
    if not steps:
        st.info(f"{theme.unmarked(run.name)} has no snapshot yet: the first one is written when training starts.")
        st.stop()
    choosers.settle_step(steps)
    return _room() if len(steps) > 1 else None


@lasting()
def make_room(steps: list[int]) -> DeltaGenerator:
    """Where the timeline of a page without a strip goes."""
    room = _room() if len(steps) > 1 else st.container()
    st.empty()  # a strip of the page before would stay until all is drawn
    return room


@lasting()
def _room() -> DeltaGenerator:
    """As high as a timeline will be: it may be drawn last, and nothing should move then."""
    room = st.container(key="stage_timeline", gap=None)
    room.html("<i></i>")  # an empty container takes no room
    return room


def draw_timeline(run: Run, steps: list[int]) -> None:
    """Over `steps`, without a film: nothing on the page is drawn from a prompt."""
    trace = loading.so_far(run)
    measure = head = None
    if trace is not None and head_scores.has_heads(trace) and (offered := head_scores.head_measures(trace)):
        measure, head = choosers.measure_in_force(offered), choosers.focus(trace, choosers.step_in_force(steps))
    _draw(run, course.curves(run, tuple(steps), measure, head), steps, head, measure)


def draw_film(
    run: Run, trace: xr.Dataset, steps: list[int], see: Callable[[int], PromptPatterns], focus: Head, measure: str,
    film_off: DeltaGenerator | None,
) -> None:  # fmt: skip
    """Snapshots at `steps`, of which `see` gives every head on the prompt; nothing where there is only one.

    `film_off`: with heads off, where the button stands that films them.
    """
    if len(steps) == 1:
        return
    shown = see(choosers.step_in_force(steps))
    asked = st.session_state.get("film_of") == shown.look
    film = prompt_film.film_of(run, trace, steps, shown, see, asked, apart=run.live)
    _draw(run, film.blob, steps, focus, measure)
    if film.reels:
        with st.container(key="reels_scrubber"):
            for i, reel in enumerate(film.reels):
                serve("reel", key=f"scrubber reel {i}", data=reel)
    if film.left:
        why = "a click on a switch waits for no film" if shown.off else "this model is large"
        with st.container() if film_off is None else film_off:
            if not shown.off:
                st.space("small")
            st.button(
                "Film" if shown.off else f"Film {film.left} snapshots", key="film", icon=":material/movie:",
                type="tertiary" if shown.off else "secondary",
                help=f"Runs the prompt through {film.left} snapshots, so that the patterns move along while you drag. "
                f"It is not done unasked, because {why}.",
                on_click=lambda: st.session_state.update(film_of=shown.look),
            )  # fmt: skip


@lasting()
def serve_film(run: Run, trace: xr.Dataset, shown: PromptPatterns, see: Callable[[int], PromptPatterns]) -> None:
    """What a timeline of records plays: the prompt of `shown` at every snapshot, or as it was kept; nothing that costs
    much."""
    steps = run.steps if prompts.can_read(run) else recorded_prompts.prompts(run).steps
    asked = st.session_state.get("film_of") == shown.look
    film = prompt_film.whole_film(run, trace, steps, shown, see, asked)
    if film is not None:
        serve("film", key="film_beside", data=film)


@lasting()
def _draw(run: Run, blob: bytes, steps: list[int], head: Head | None, measure: str | None) -> None:
    trace = loading.so_far(run)
    scale = None
    if trace is not None and measure is not None and measure in trace:
        scale = choosers.scale(measure, run, trace[measure].values)

    def chosen(step: int) -> None:  # the head stays: without a choice it is the most striking one of each step
        kept = {} if head is None else {"layer": head[0], "head": head[1]}
        state.update(step=None if step == steps[-1] else step, **kept)

    picture = scrubber.picture(
        blob, step=choosers.step_in_force(steps), head=head, measure=measure, scale=scale, live=run.live,
        events=course.events(run), heads_off=bool(state.read().off),
    )  # fmt: skip
    draw(picture, key="scrubber", on_change=chosen)
