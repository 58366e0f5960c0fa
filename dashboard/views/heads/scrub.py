"""The timeline of a run: play or drag through its snapshots on the reader's own prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import state
from dashboard.loading import events, prompt_film
from dashboard.shared import choosers
from dashboard.shared.mount import draw, serve
from tracer.measures.aliases import Head
from tracer.pictures import scrubber
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr
    from streamlit.delta_generator import DeltaGenerator


def make_room(steps: list[int]) -> DeltaGenerator:
    """Where the timeline goes, as high as it will be: it is drawn last, and nothing should move then."""
    if len(steps) == 1:
        return st.container()
    room = st.container(key="timeline", gap=None)
    room.html("<i></i>")  # an empty container takes no room
    return room


def draw_scrubber(
    run: Run, trace: xr.Dataset, steps: list[int], see: Callable[[int], PromptPatterns], focus: Head, measure: str,
    film_off: DeltaGenerator,
) -> None:  # fmt: skip
    """Snapshots at `steps`, of which `see` gives every head on the prompt; nothing where there is only one.

    `film_off`: where the button stands that films them while heads are off.
    """
    if len(steps) == 1:
        return
    step = choosers.step_in_force(steps)
    shown = see(step)
    asked = st.session_state.get("film_of") == shown.look
    film = prompt_film.film_of(run, trace, steps, shown, see, asked, apart=run.live)
    scale = choosers.scale(measure, run, trace[measure].values) if measure in trace else None

    def chosen(step: int) -> None:  # the head stays: without a choice it is the most striking one of each step
        state.update(step=None if step == steps[-1] else step, layer=focus[0], head=focus[1])

    picture = scrubber.picture(
        film.blob, step=step, head=focus, measure=measure, scale=scale, live=run.live, events=events.of_run(run)
    )
    draw(picture, key="scrubber", on_change=chosen)
    if film.reels:
        with st.container(key="reels_scrubber"):
            for i, reel in enumerate(film.reels):
                serve("reel", key=f"scrubber reel {i}", data=reel)
    if film.left:
        why = "a click on a switch waits for no film" if shown.off else "this model is large"
        with film_off if shown.off else st.container():
            if not shown.off:
                st.space("small")
            st.button(
                "Film" if shown.off else f"Film {film.left} snapshots", key="film", icon=":material/movie:",
                type="tertiary" if shown.off else "secondary",
                help=f"Runs the prompt through {film.left} snapshots, so that the patterns move along while you drag. "
                f"It is not done unasked, because {why}.",
                on_click=lambda: st.session_state.update(film_of=shown.look),
            )  # fmt: skip
