"""What several pages draw: the bar with the chooser of a run, a page's own choices, the step, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np
import streamlit as st

from dashboard import jobs, loading, navigation, state, theme
from dashboard.loading import head_scores
from dashboard.shared.pulse import ticking
from dashboard.shared.run_bar import draw_run_bar, draw_starting, moves
from dashboard.streamlit_internals import lasting
from tracer.measures import MEASURES, Measure, in_trace
from tracer.pictures.scales import of_measure
from tracer.store import NotARun, NothingRecorded, nearest_row

if TYPE_CHECKING:
    import xarray as xr
    from streamlit.delta_generator import DeltaGenerator

    from tracer.store import Run


ROW = 38
"""Pixels of the bar, and of a row of choices whose labels stand at their left."""
RUN, AXIS = 200, 200
"""Pixels of the choice of a run, and of that of the axis with its label."""


@lasting()
def heading(title: str, question: str, of_run: bool = True) -> None:
    """The bar: the page's name for who hears it (the menu marks it), its question, and room for what comes later.

    At the left the run and how it stands, where the page is about one (`of_run`); at the right what it is compared
    with, what can be done with it, and Share. Of a page about no run only Share is seen, in the menu's row.
    """
    key = "heading" if of_run else "heading_alone"
    with st.container(key=key, horizontal=True, vertical_alignment="center", gap="small"):
        st.title(title, anchor=False, width="content")
        run = _place("run_place", RUN) if of_run else None
        bar = _line("run_bar")
        with st.container(key="question"):
            st.caption(question)
        compare = _line("compare_place")
        deeds = _line("run_deeds")
        share = st.container(key="share_place", width="content")
    refused = st.container()  # nothing is laid out for it while it is empty
    st.session_state.update(
        run_place=run, run_bar_place=bar, compare_place=compare, run_deeds_place=deeds, share_place=share,
        refused_place=refused,
    )  # fmt: skip


def _line(key: str) -> DeltaGenerator:
    return st.container(key=key, width="content", horizontal=True, vertical_alignment="center", gap="small")


def row(*widths: int) -> list[DeltaGenerator]:
    """Places for a page's own choices, as high as one before it is there: of so many pixels, 0 of what others leave.

    Below the timeline, which stands at one height on every page.
    """
    with st.container(key="choosers", horizontal=True, gap="medium"):
        return [_place(f"choice-{i}", width or "stretch") for i, width in enumerate(widths)]


def answer_row(*widths: int) -> list[DeltaGenerator]:
    """The place of the page's answer, and at its right, or below it, places for the page's choices as in `row`."""
    with st.container(key="choosers", horizontal=True, gap="medium"):
        answered = st.container(key="answered", vertical_alignment="center")
        return [answered, *(_place(f"choice-{i}", width) for i, width in enumerate(widths))]


def _place(key: str, width: int | Literal["stretch"]) -> DeltaGenerator:
    return st.container(key=key, width=width, height=ROW, border=False, vertical_alignment="center")


def choose_run() -> Run:
    """A selectbox of runs; stops the page with a friendly word when there is none, or when it cannot be opened."""
    selection = state.read()
    names = [run.name for run in loading.runs()] or [one.name for one in jobs.making()]
    if selection.run is not None and selection.run not in names:
        names.insert(0, selection.run)
    if not names:
        st.info(
            "There is no run yet. Train the demo from the Runs page: it takes some minutes.",
            icon=":material/school:",
        )
        st.page_link(navigation.page("runs"), label="Go to Runs", icon=":material/arrow_forward:")
        st.stop()
    current = selection.run if selection.run in names else names[0]
    if selection.run != current:
        state.open_run(current)
    with st.session_state["run_place"], lasting():
        st.selectbox("Run", names, label_visibility="collapsed",
                     **state.control("run_box", current, state.open_run))  # fmt: skip
    try:
        run = loading.run(current)
    except (ValueError, OSError) as error:  # OSError: a name too long for the file system
        if isinstance(error, NotARun) and not loading.is_there(current):
            _wait_for(current)
            _offer([name for name in names if name != current])
        with st.session_state["refused_place"]:  # the place of the choice is too narrow for a sentence
            refuse(str(error))
    with st.session_state["run_bar_place"], nullcontext() if moves(run) else lasting():  # what ticks goes with its page
        draw_run_bar(run)
    return run


OFFERED = 5
"""Runs that are offered instead of one that is gone."""


def _offer(names: list[str]) -> None:
    """Other runs in place of one that is gone, the newest first; the rest of the link stays as it is."""
    with st.session_state["refused_place"].container(horizontal=True, key="other_runs"):
        for name in names[:OFFERED]:
            st.button(f"Open {theme.unmarked(name)}", key=f"open_{name}", on_click=state.update, kwargs={"run": name})


def _wait_for(name: str) -> None:
    """Show a run as soon as it is there; until then say so and stop the page, if it is one that was started here."""
    starting = _is_starting(name)

    def look() -> None:
        if loading.is_there(name) or _is_starting(name) != starting:
            st.rerun()

    ticking(look, key="coming")
    if starting:
        with st.session_state["run_bar_place"]:
            draw_starting()
        st.info("This run is starting, and opens here by itself in some seconds.", icon=":material/hourglass_top:")
        st.stop()


def _is_starting(name: str) -> bool:
    return name in [one.name for one in jobs.making()]


def choose_axis() -> None:
    """Whether steps stand on a linear or a logarithmic axis, on every page that draws over them."""
    shown = "log" if state.read().log else "linear"
    st.segmented_control(
        "Step axis", ["linear", "log"], required=True,
        **state.control("axis_box", shown, lambda axis: state.update(log=axis == "log")),
    )  # fmt: skip


def settle_step(steps: list[int]) -> int:
    """The step in force of those that the page has; where it lacks the chosen one, this one is chosen from now on."""
    step = step_in_force(steps)
    if state.read().step not in (None, step):
        state.update(step=step)
    return step


def step_in_force(steps: list[int]) -> int:
    """The one of these steps that is nearest to the chosen one; the last until somebody chooses."""
    return steps[nearest_row(steps, state.read().step)]


def measure_in_force(offered: list[str]) -> str:
    """The measure of heads that is chosen, or induction, of those that the page has."""
    return state.among("measure", offered) or next(name for name in ("induction", *offered) if name in offered)


def choose_measure(run: Run, label: str, offered: list[str]) -> str:
    """A select box of these measures of heads, with what the chosen one is."""
    measure = measure_in_force(offered)
    return st.selectbox(
        label, offered, format_func=lambda name: measure_of(run, name).label, help=explanation(measure, run),
        **state.control("measure_box", measure, lambda name: state.update(measure=name)),
    )  # fmt: skip


def recorded(run: Run) -> xr.Dataset | None:
    """The trace once it holds a row; until then the reader is told, and gets None."""
    try:
        trace = loading.trace(run)
    except ValueError as error:
        if not (run.live and isinstance(error, NothingRecorded)):
            refuse(str(error))
        trace = None
    if trace is not None and trace.sizes["step"]:
        return trace
    st.info("Nothing is recorded yet: the first row comes with the first step.", icon=":material/hourglass_top:")
    return None


def tick(run: Run, draw: Callable[[], None]) -> None:
    """Draw; while the run trains, draw again every 2 s in place.

    The whole page once more with the first record, which brings what stands elsewhere (Share), and when training ends.
    """
    if not run.live:
        draw()
        return
    empty = loading.so_far(run) is None

    def again() -> None:
        if not loading.is_there(str(run.dir)):  # removed meanwhile: the page says so
            st.rerun()
        draw()
        if not run.live or (loading.so_far(run) is None) != empty:
            st.rerun()

    ticking(again, key=draw.__qualname__)


def say_why_no_heads(run: Run) -> None:
    """A sentence on a page that shows what else a run holds; nothing of one that has heads."""
    if why := run.why_not("heads"):
        with st.container(key="why_no_heads"):
            st.text(f"No heads were recorded: {why}.")  # names of others are never Markdown


def without_heads(run: Run) -> bool:
    """Says of a run without heads why it has none, and where all else is; False, and nothing, of one that has some."""
    why = run.why_not("heads")
    if not why:
        return False
    with st.container(key="without_heads", gap="small"):
        st.info("No heads were recorded in this run.", icon=":material/visibility_off:")
        st.text(theme.sentence(why))  # names of others are never Markdown
        with st.container(horizontal=True):
            for page, label in (("training", "Its losses on Training"), ("gradients", "Its weights on Gradients")):
                st.page_link(navigation.page(page), label=label, icon=":material/arrow_forward:")
    return True


def refuse(message: str) -> NoReturn:
    """Say what is wrong and what to do, as text (never as HTML or Markdown), and stop the page."""
    with st.container(key="refused", gap="xsmall"):
        st.error("This cannot be shown.", icon=":material/block:")
        st.text(message)
    st.stop()


def focus(trace: xr.Dataset, step: int | None = None) -> tuple[int, int]:
    """The head in focus, or the most striking one when none was chosen or it does not exist here."""
    selection, there = state.read(), head_scores.head_exists(trace)
    chosen = selection.focus
    if chosen and chosen[0] < there.shape[0] and chosen[1] < there.shape[1] and there[chosen]:
        return chosen
    return head_scores.default_head(trace, selection.step if step is None else step)


def measure_of(run: Run, name: str) -> Measure:
    """What a variable is: the registry's row, or what the run's trace says of somebody's own."""
    return MEASURES[name] if name in MEASURES else in_trace(loading.trace(run), name)


def scale(name: str, run: Run, values: np.ndarray | None = None) -> theme.Scale:
    """How a measure is coloured and printed in this run; an open end of its range is taken from the values."""
    return of_measure(measure_of(run, name), run.about.setting, () if values is None else values)


def probe(run: Run, name: str) -> str:
    """What a measure was taken on, in words; of the models of others no text was held out."""
    said = measure_of(run, name).probe
    return run.about.probes.get(said, said)


def explanation(name: str, run: Run) -> str:
    """What a measure is, as Markdown: in plain words, formula, probe, range, value at chance, source."""
    measure, plain = measure_of(run, name), theme.unmarked
    lines = [f"**{plain(measure.label)}**: {plain(measure.note or measure.formula)}"]
    if measure.note:
        lines.append(f"Formula: {plain(measure.formula)}.")
    lines.append(f"Measured on {plain(probe(run, name))}.")
    if measure.low is not None or measure.high is not None:
        unit = f" {plain(measure.unit)}" if measure.unit else ""
        lines.append(f"Range {_end(measure.low, '−infinity')} to {_end(measure.high, 'infinity')}{unit}.")
    chance = measure.at_chance(run.about.setting)
    if chance is not None:
        lines.append(f"At chance {theme.fmt(chance, measure)} ({plain(measure.chance_text)}).")
    if measure.worse:
        lines.append(f"{'Lower' if measure.worse == 'high' else 'Higher'} is better.")
    lines.append(f"Source: {plain(measure.source)}.")
    return "  \n".join(lines)


def _end(value: float | None, open_end: str) -> str:
    return open_end if value is None else f"{value:g}"
