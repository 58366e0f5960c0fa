"""Training: did it learn, when did heads change, and what does it write?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import head_scores, replays
from dashboard.shared import choosers
from dashboard.shared.answer import draw_answer
from dashboard.shared.comparing import choose_several
from dashboard.stage import heads
from dashboard.views.training.curve_lines import draw_lines, thinned
from dashboard.views.training.every_head import draw_heads
from dashboard.views.training.facts import draw_divergence, draw_facts, draw_samples
from dashboard.views.training.loss_curves import (
    CONTEXT,
    COPYING,
    LOSSES,
    draw_context,
    draw_copying,
    draw_loss,
    draw_positions,
)
from dashboard.views.training.own_charts import draw_own
from dashboard.views.training.run_answer import answer
from dashboard.views.training.stretch_closer import draw_stretch
from tracer.analysis.over_seeds import FEWEST, mean_over_seeds
from tracer.measures import MEASURES
from tracer.store import Run
from tracer.store.choosing import differences, settings

if TYPE_CHECKING:
    import xarray as xr

FEW = 8
"""Rows of a trace that make no curve."""
PACE = {"learning_rate": "learning rate", "tokens_per_second": "tokens a second"}
"""Of every update, in runs that are watched."""
OFTEN_MISSING = {
    "training loss": ["train_loss"], "held-out loss": ["val_loss"], "copying": list(COPYING),
    "use of context": list(CONTEXT), "loss by position": ["loss_by_position"],
}  # fmt: skip
"""Variables that runs of other people's models may lack, in the words of the page."""
Section = tuple[Iterable[str], Callable[[], None]]
"""The variables that a section shows, one of which must hold something, and what draws it."""


def page() -> None:
    choosers.heading("Training", "Did it learn, when did its heads change, and what does it write?")
    run = choosers.choose_run()
    compared = choose_several(run)
    choosers.tick(run, lambda: heads.slim(run, lambda: _draw(run, compared)))


def _draw(run: Run, compared: list[Run]) -> None:
    """Everything below the stage; this is what a live run draws again."""
    answered, axis = choosers.answer_row(choosers.AXIS)
    with axis:
        choosers.choose_axis()
    draw_divergence(run)  # before a trace that cannot be read ends the page
    trace = choosers.recorded(run)
    if trace is None:
        return
    traces = {run.name: trace}
    for other in compared:
        traces |= _readable(other)
    step = state.read().step
    laid_over = next((other for other in compared if other.name in traces), None)
    each = {one.name: found for one in (run, *compared) if (found := loading.updates(one)) is not None}
    with answered:
        draw_answer(answer(run, trace, each.get(run.name), step))
    draw_facts(traces, (run, *compared), step, each)
    _draw_few(run, trace)

    lines = _over_seeds([run, *compared], traces)
    if run.name in lines and (closer := replays.traces(run)):
        lines |= {run.name: replays.merged(trace, closer)}
        st.caption(replays.said(run))
    each = {name: found for name, found in each.items() if name in lines}

    def row(*sections: Section) -> None:
        """Sections side by side, those that hold something."""
        held = [one for names, one in sections if any(head_scores.holds(t, n) for t in traces.values() for n in names)]
        for column, draw_one in zip(st.columns(len(held), gap="large") if held else (), held, strict=True):
            with column:
                draw_one()

    row((LOSSES, lambda: draw_loss(run, lines, each)))
    if head_scores.head_measures(trace):
        comparable = laid_over is not None and head_scores.has_heads(traces[laid_over.name])
        draw_heads(run, trace, laid_over if comparable else None)
    row((COPYING, lambda: draw_copying(run, lines)), (CONTEXT, lambda: draw_context(lines)))
    row((("loss_by_position",), lambda: draw_positions(run, traces, step)))
    draw_own(run, traces, each)
    _draw_pace(each)
    _draw_missing(run, trace)
    draw_stretch(run, step)
    draw_samples(run, step)


def _over_seeds(runs: list[Run], traces: dict[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The traces whose losses are drawn: where runs differ in nothing but the seed, their mean if that is asked for."""
    n = len(traces)
    if n < FEWEST or set(differences([settings(run) for run in runs if run.name in traces])) != {"seed"}:
        return traces
    st.toggle(
        f"Mean of the {n} seeds", **state.control("mean_box", state.read().mean, lambda on: state.update(mean=on))
    )
    if not state.read().mean:
        return traces
    return {f"mean of {n} seeds": mean_over_seeds(list(traces.values()), [*LOSSES, *COPYING, *CONTEXT])}


def _draw_few(run: Run, trace: xr.Dataset) -> None:
    """Why a short loop of somebody else's has hardly a curve, and what to write for one."""
    n, last = trace.sizes["step"], int(trace["step"][-1])
    elsewhere = run.why_not("recipe") and run.can("training")
    if elsewhere and not run.live and n < FEW and last >= FEW:
        every = max(1, last // 20)
        st.caption(
            f"Measured at {n} steps only, to take 1 % of a short training. For more, give `every={every}` to "
            "`tracer.watch` or to the callback."
        )


def _draw_missing(run: Run, trace: xr.Dataset) -> None:
    """One sentence on what the page has no numbers for, where a reader may look for it."""
    offered = OFTEN_MISSING if head_scores.predicts_tokens(trace) else {"training loss": ["train_loss"]}
    missing = [what for what, names in offered.items() if not any(head_scores.holds(trace, n) for n in names)]
    if missing:
        st.caption(f"Not measured in this run: {', '.join(missing)}.")
    choosers.say_why_no_heads(run)


def _readable(compared: Run) -> dict[str, xr.Dataset]:
    try:
        trace = loading.trace(compared)
    except ValueError as error:
        st.text(str(error))
        return {}
    return {compared.name: trace} if trace.sizes["step"] else {}


def _draw_pace(each: dict[str, xr.Dataset]) -> None:
    """What a loop that is watched did at every update, beside its loss."""
    shown = [name for name in PACE if any(head_scores.holds(found, name) for found in each.values())]
    if not shown:
        return
    for column, name in zip(st.columns(2, gap="large"), shown, strict=False):
        with column:
            st.header(MEASURES[name].label, anchor=False)
            st.caption(f"At every update.{thinned(each)}")
            draw_lines(each, {name: PACE[name]}, name, theme.Scale(MEASURES[name].label, MEASURES[name].unit))
