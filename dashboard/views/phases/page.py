"""Phases: what changed when, in which order, and how sure one can be of it?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import changes, head_scores, replays
from dashboard.shared import choosers
from dashboard.shared.answer import draw_answer
from dashboard.shared.asking import asked
from dashboard.shared.comparing import choose_several
from dashboard.shared.glossary import terms
from dashboard.shared.plots import plot
from dashboard.stage import heads
from dashboard.views.phases import data, figures
from dashboard.views.phases.again import draw_again
from dashboard.views.phases.losses import draw_path, draw_surfaces, go
from dashboard.views.phases.order import answer, basis, draw_order, window
from dashboard.views.phases.rows_behind import draw_rows_behind
from dashboard.views.phases.seeds import alike, draw_seeds
from dashboard.views.phases.undoing import draw_undoing
from tracer.analysis import training_curves
from tracer.analysis.training_curves import Curve, events, finer
from tracer.measures import HEAD_MEASURES
from tracer.measures.change_points import FEWEST
from tracer.measures.plateaus import APART, STANDS
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

PREFERRED = ("induction", "repeat_loss", "previous_token")
CLOSER = (
    "At which positions did the loss fall, did its path bend then, and which heads undo the change when they are "
    "switched off? Three pictures of Olsson et al. 2022."
)
HOW = f"""A change is found by this project's own detector, which reads one curve at a time:

- Without a change, a curve is a line plus one exponential decay or growth, under noise of any memory from none to a
  random walk. An S-shaped step on top of that must fit better than chance allows.
- The step must stand out: it is {STANDS:.0f} times as large as anything that the curve does before and after it. White
  noise may be larger, if the two levels are {APART:.0f} standard errors apart. A head that is the highest of many must
  stand out more.
- What goes back is an excursion. What changes as the learning rate warms up is not dated. Neither is an event.
- Of curves without a change at most 5 % are dated, of each kind that was tried: walks with heavy or smooth steps,
  cycles, scores that wander, noise that dies out, bumps, warm-ups. docs/truth.md lists the kinds and the rates.
- The date is the middle of the step. Its 95 % interval holds all middles that fit nearly as well. Onset and end are
  10 % and 90 % of the way of the fitted step.
- One change comes before another where their intervals part; otherwise their order is not known. What takes more than
  half of the run is a slope, and what still moves when it ends has no date yet.
- Half of the way in one unit is not half in another: one event is dated earlier as a loss than as a probability. Curves
  of different units are in order where one ends before the other begins, or where log odds of both say the same.
- Bands are 95 % intervals over the texts that a value is a mean of. A move so small that two equal levels would fit
  into them is not called a change.

Source: a likelihood ratio that holds for stationary and integrated noise (Perron and Yabu 2009), inverted for the
interval (Eo and Morley 2015); its shapes and limits are ours. Olsson et al. 2022 marked one window by eye, from loss,
in-context learning, prefix matching and the path of the losses together: look at all of them.

The induction head is the one whose score ends farthest above its control. Where no score does, none stands out and
there is no such curve. The previous-token head is the one that ends highest in a layer before it. K-composition says
how much the one reads of the other, minus what random heads read (Elhage et al. 2021). The gradient norm is that of
all parameters, before clipping."""


def page() -> None:
    choosers.heading("Phases", "What changed when, and in which order?")
    run = choosers.choose_run()
    compared = choose_several(run, alike(run, {one.name: one for one in loading.runs()}))
    choosers.tick(run, lambda: heads.slim(run, lambda: _draw(run, compared)))


def _draw(run: Run, compared: list[Run]) -> None:
    trace = choosers.recorded(run)
    if trace is None:
        return
    found = changes.curves(run)
    if not found:
        st.info("Nothing that this page reads was measured in this run.")
        return
    changed, warmup = events(found), training_curves.warmed_up(trace)
    none = head_scores.holds(trace, "induction") and training_curves.strongest(trace) is None
    smeared = run.can("recipe") and run.config.model.smear == "keys"
    rows = trace.sizes["step"]
    few = rows < FEWEST and not run.why_not("recipe")
    answered, axis = choosers.answer_row(choosers.AXIS)
    with answered:
        draw_answer(answer(found, changed, none, smeared), "`--record.every` records more often." if few else None)
    with axis:
        choosers.choose_axis()
    if run.live and rows >= FEWEST:
        st.caption("The run goes on: more records may move these dates.")
    st.header("Curves by step", anchor=False)
    if changed:
        st.caption("Shaded: while it changes. Line: halfway. Bar: 95 % interval.")
    _draw_timeline(run, found, changed, warmup, compared)
    if training_curves.readable(run):
        asked(changes.wish(run), "Measure K-composition", key="ask_composition", at_once=changes.may_read(run),
              help="Reads the weights of every snapshot, of which there are many in this run.")  # fmt: skip
    left, right = st.columns(2, gap="large")
    with left:
        draw_order(found, changed, warmup)
    with right, st.expander("How is this measured?"):
        st.markdown(basis(found))
        st.markdown(HOW)
        st.markdown(f"**Terms**\n\n{terms('induction head', 'K-composition', 'nats')}")
    choosers.say_why_no_heads(run)
    if rows >= FEWEST:
        draw_seeds(run, found, compared)
    if data.losses(run) is not None:
        _draw_closer(run, trace, found, changed)


def _draw_closer(run: Run, trace: xr.Dataset, found: list[Curve], changed: list[Curve]) -> None:
    """Three pictures of one change; folded unless a link is about one."""
    chosen = state.read()
    st.header("One change, closer", anchor=False)
    st.caption(CLOSER)
    asked = bool(chosen.phase or chosen.path or chosen.since)
    with st.expander("The losses by position, their path, and which heads undo the change", key="closer",
                     expanded=asked, on_change="rerun") as closer:  # fmt: skip
        if not closer.open:
            return
        phase = _choose_phase(changed)
        if phase is not None:
            draw_again(run, phase)
            if phase.name in HEAD_MEASURES and len(phase.heads) == 1 and run.can("recipe"):
                draw_rows_behind(run, phase)
        draw_surfaces(run, phase)
        fall = next((curve for curve in found if curve.name == "val_loss"), None)
        draw_path(run, fall, phase)
        if phase is not None and run.steps:
            draw_undoing(run, trace, phase)


def _draw_timeline(
    run: Run, found: list[Curve], changed: list[Curve], warmup: float | None, compared: list[Run]
) -> None:
    """The curves in the order in which they changed; below them those that never did, unnumbered."""
    numbers = {curve.name: i + 1 for i, curve in enumerate(changed)}
    lanes = [*changed, *(curve for curve in found if curve.name not in numbers)]
    names = ("onset", "midpoint", "end", "low", "high")
    windows = [astuple(c.change)[:5] if c.change else None for c in lanes]
    known, closer = run.meta.get("references", {}), replays.traces(run)
    lines, others = [finer(c, closer) for c in lanes], _others(compared)
    figure = figures.timeline(
        lines, [c.label for c in lanes], units=[c.unit for c in lanes], windows=windows,
        numbers=[numbers.get(c.name) for c in lanes],
        bands=[_band(c, steps) for c, (steps, _) in zip(lanes, lines, strict=True)],
        step=state.read().step, log_x=state.read().log, warmup=warmup,
        marks=[known if c.name == "val_loss" else {} for c in lanes],
        beside=[{run: (of[c.name].steps, of[c.name].values) for run, of in others.items() if c.name in of}
                for c in lanes],
    )  # fmt: skip

    def numbered() -> dict[str, list[Any]]:
        ends = [window or (None,) * len(names) for window in windows]
        return {"curve": [c.label for c in lanes], **{
            name: [end[i] for end in ends] for i, name in enumerate(names)
        }, "first": [float(c.values[0]) for c in lanes], "last": [float(c.values[-1]) for c in lanes]}  # fmt: skip

    if others:
        st.caption(f"Dashed: {', '.join(map(theme.unmarked, others))}, each with its own heads.")
    if closer:
        st.caption(f"{replays.said(run)} Dates are those of the run's own records.")
    plot(figure, key="timeline", alt=f"{len(lanes)} curves over training, in the order in which they changed",
         on_pick=go, numbers=numbered, over_steps=True)  # fmt: skip


def _others(compared: list[Run]) -> dict[str, dict[str, Curve]]:
    """The curves of runs that are laid beside this one, by their names; `draw_seeds` says whose can't be read."""
    found = {}
    for other in compared:
        with suppress(ValueError, OSError):
            found[other.name] = {curve.name: curve for curve in changes.curves(other)}
    return found


def _band(curve: Curve, steps: np.ndarray) -> np.ndarray | None:
    """Both ends of a curve's intervals at these steps, nan where it was not measured itself."""
    if (band := curve.band) is None:
        return None
    found = np.full((2, len(steps)), np.nan)
    found[:, np.searchsorted(steps, curve.steps)] = band
    return found


def _choose_phase(changed: list[Curve]) -> Curve | None:
    """The change whose window the pictures below are about; the one that says most of an induction circuit at first."""
    if not changed:
        return None
    by_name = {curve.name: curve for curve in changed}
    wanted = [state.among("phase", by_name), *PREFERRED, changed[-1].name]
    shown = next(name for name in wanted if name in by_name)
    name = st.selectbox(
        "The change that is looked at below", list(by_name), width=420,
        format_func=lambda one: f"{by_name[one].label}, steps {window(by_name[one])}",
        **state.control("phase_box", shown, lambda name: state.update(phase=name)),
    )  # fmt: skip
    return by_name[name]
