"""Gradients: is every tensor learning at a healthy pace?"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import head_scores, rows
from dashboard.shared import choosers
from dashboard.shared.answer import draw_answer
from dashboard.shared.answer_beside import draw_line
from dashboard.shared.comparing import choose_several, refuse_to_compare
from dashboard.shared.entropy_bound import draw_bound
from dashboard.shared.mount import draw
from dashboard.shared.plots import table
from dashboard.stage import heads
from dashboard.views.gradients import norms
from dashboard.views.gradients.health import USUAL, answer, draw_bands, verdict
from dashboard.views.gradients.over_time import draw_over_time
from dashboard.views.gradients.pictures import draw_heads, plot_kept
from dashboard.views.gradients.reasons import draw_why
from dashboard.views.gradients.rows_that_moved import draw_rows
from tracer.analysis import training_curves
from tracer.config import OptimConfig
from tracer.measures import MEASURES
from tracer.pictures import curves
from tracer.store import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import xarray as xr

QUANTITIES = {
    "update_ratio": "update ratio", "grad_norm": "norm of the gradient",
    "grad_norm_clipped": "norm of the clipped gradient", "weight_norm": "norm of the weight",
}  # fmt: skip
SHORT = QUANTITIES | {"grad_norm": "gradient", "grad_norm_clipped": "clipped", "weight_norm": "weight"}
"""All four fit the width of a phone."""
COLUMNS = ("update_ratio", "grad_norm", "weight_norm")
HEIGHT, QUANTITY = 260, 440
"""Pixels of a picture, and of the choice of the quantity."""
RULE_OF_THUMB = 1e-3
Others = list[tuple[Run, "xr.Dataset"]]
"""Runs that this one is compared with, and their traces."""


def page() -> None:
    choosers.heading("Gradients", "Is every tensor, and every head, learning at a healthy pace?")
    run = choosers.choose_run()
    offered = _offered(run)
    if not offered:
        why = run.why_not("training") or "its optimiser was not watched"
        refuse_to_compare(f"This run holds no gradients: {why}.")
        if choosers.recorded(run) is not None:
            st.info(f"This run holds no gradients: {why}.", icon=":material/trending_flat:")
        return
    compared = choose_several(run)
    choosers.tick(run, lambda: heads.slim(run, lambda: _draw(run, offered, compared)))


def _choose_quantity(offered: list[str]) -> str:
    """The first of those that the run holds, until somebody chooses."""
    shown = state.among("quantity", offered) or offered[0]
    st.segmented_control("Show", offered, required=True, format_func=SHORT.__getitem__,
                         **state.control("quantity_box", shown, lambda name: state.update(quantity=name)))  # fmt: skip
    return shown


def _offered(run: Run) -> list[str]:
    """The quantities that hold something; all of them while nothing is recorded yet."""
    try:
        trace = loading.trace(run)
    except ValueError:
        return list(QUANTITIES) if run.live else []
    if not trace.sizes["step"]:
        return list(QUANTITIES)
    held = [name for name in QUANTITIES if head_scores.holds(trace, name)]
    same = "grad_norm" in held and not _clipped(trace)
    return [name for name in held if name != "grad_norm_clipped" or not same]


def _clipped(trace: xr.Dataset) -> bool:
    """Was any recorded gradient clipped?"""
    return head_scores.holds(trace, "clip_factor") and bool((trace["clip_factor"].values < 1).any())


def _draw(run: Run, offered: list[str], compared: list[Run]) -> None:
    """Everything below the stage; this is what a live run draws again."""
    trace = choosers.recorded(run)
    if trace is None:
        return
    steps = trace["step"].values
    held = [name for name in QUANTITIES if head_scores.holds(trace, name)]
    if not held:
        st.info("No update has been made yet.", icon=":material/hourglass_top:")
        return
    row = rows.last_measured(steps, trace[held[0]].values, state.read().step)
    row = row if row is not None else 0
    names = [str(name) for name in trace["param"].values]
    others = _traces(compared)
    answered, quantity, axis = choosers.answer_row(QUANTITY, choosers.AXIS)
    with quantity:
        shown = _choose_quantity(offered)
    with axis:
        choosers.choose_axis()
    with answered, st.container(key="of_a_step"):
        draw_answer(_answer(run, trace))
        with st.container(key="beside", gap="xxsmall") if others else nullcontext():
            for other, its in others:
                draw_line(other, choosers.step_in_force(its["step"].values.tolist()), _answer(other, its))
    by_head = head_scores.holds(trace, f"head_{shown}")
    if by_head:
        draw_over_time(trace, shown, QUANTITIES[shown], choosers.focus(trace))
    tensor = state.among("tensor", names) or _first(names)
    left, right = st.columns([1, 1], gap="large")
    with left:
        _draw_picture(trace, names, shown, tensor, row, run)
    with right:
        _draw_tensors(trace, names, shown, tensor, int(steps[row]))
    _draw_table(trace, names, row, tensor, _optimiser(run))
    if "grad_norm" in held:
        _draw_global(run, trace, int(steps[row]), others)
    if by_head:
        _draw_heads(run, trace, shown, row)
    draw_why(trace, choosers.focus(trace) if head_scores.has_heads(trace) else None, int(steps[row]))
    with st.expander("What do these numbers say?"):
        for name in (*_offered(run), "clip_factor", "resid_rms"):
            if head_scores.holds(trace, name):
                st.markdown(choosers.explanation(name, run))


def _answer(run: Run, trace: xr.Dataset) -> str:
    """How fast the tensors of a run learn, at the last update up to the step in force."""
    if not head_scores.holds(trace, "update_ratio"):
        held = [label for name, label in QUANTITIES.items() if head_scores.holds(trace, name)]
        return f"No update ratio was recorded: {', '.join(held) or 'nothing'} only."
    ratios, names = trace["update_ratio"].values, [str(name) for name in trace["param"].values]
    row = rows.last_measured(trace["step"].values, ratios, state.read().step)
    return answer(rows.short_names(names), ratios[row or 0], _optimiser(run))


def _traces(compared: list[Run]) -> Others:
    """Those of compared runs that hold gradients; the page says which can't be read."""
    found: Others = []
    for other in compared:
        try:
            trace = loading.trace(other)
        except ValueError as error:
            st.text(str(error))
            continue
        if trace.sizes["step"] and head_scores.holds(trace, "grad_norm"):
            found.append((other, trace))
        else:
            st.caption(f"{theme.unmarked(other.name)} holds no gradients.")
    return found


def _draw_table(trace: xr.Dataset, names: list[str], row: int, chosen: str, optimiser: OptimConfig | None) -> None:
    """Update ratio, gradient and weight of every tensor at one step, folded."""
    step = int(trace["step"].values[row])
    held = [name for name in COLUMNS if head_scores.holds(trace, name)]
    columns: dict[str, Any] = {"tensor": rows.short_names(names)}
    config: dict[str, Any] = {}
    count = ""
    if "update_ratio" in held:
        columns["pace"] = [verdict(float(x), optimiser) for x in trace["update_ratio"].values[row]]
        config["pace"] = st.column_config.TextColumn(help="how the update ratio reads; see below", width=80)
        count = f": {', '.join(f'{n} {pace}' for pace, n in Counter(columns['pace']).most_common())}"
    for name in held:
        columns[SHORT[name]], config[SHORT[name]] = _column(trace[name].values[row], MEASURES[name].formula)
    followed: Any = {"selection": {"rows": [names.index(chosen)], "columns": [], "cells": []}}
    state.show("tensor_table", followed)
    alt = f"{', '.join(QUANTITIES[name] for name in held)} of {len(names)} tensors at step {step}"
    asked = state.read().step
    newest = int(trace["step"].values[-1]) if asked is None else asked
    missing = f"Last update: step {step:,}. " if newest > step else ""
    with st.expander(f"{len(names)} tensors at step {step:,}{count}", key="tensors"):
        st.caption(f"{missing}Click a row to follow its tensor in the charts; now {_code(chosen)}.")
        table(
            columns, key="tensor_table", alt=alt, most=22, config=config, selection_mode="single-row",
            selection_default=followed, on_select=lambda: _take_row(names),
        )  # fmt: skip
        if "update_ratio" in held:
            draw_bands()


def _column(values: np.ndarray, formula: str) -> tuple[list[Any], Any]:
    """Numbers, or texts where a browser's table would refuse one as too large to be exact."""
    values = values.astype(float)
    if np.nanmax(np.abs(values), initial=0.0) > 2**53:
        return [theme.fmt(v, "norm") for v in values], st.column_config.TextColumn(help=formula, width=78)
    return values.tolist(), st.column_config.NumberColumn(format="%.2g", help=formula, width=78)


def _code(name: str) -> str:
    return f"`{name.replace('`', '')}`"


def _first(names: list[str]) -> str:
    """A tensor to begin with: the queries of the first layer, or whatever comes first."""
    return next((name for name in names if name.endswith("attn.W_Q")), names[0])


def _take_row(names: list[str]) -> None:
    chosen = st.session_state["tensor_table"]["selection"]["rows"]
    if chosen and chosen[0] < len(names):
        state.update(tensor=names[chosen[0]])


def _optimiser(run: Run) -> OptimConfig | None:
    """What made the updates; None of a loop that others wrote."""
    return None if run.why_not("recipe") else run.config.optim


def _draw_picture(trace: xr.Dataset, names: list[str], shown: str, tensor: str, row: int, run: Run) -> None:
    label = QUANTITIES[shown]
    st.header(f"{label[0].upper()}{label[1:]} over training", anchor=False)
    st.caption(
        "One row per tensor; colour is a power of ten. Frames: the followed tensor, and the step."
        f"{' Drawn every 10 s while the run trains.' if run.live else ''}"
    )
    short, steps = rows.short_names(names), trace["step"].values
    chosen = short[names.index(tensor)]

    def figure() -> go.Figure:
        return norms.history(
            steps, trace[shown].values, short, label=label, band=USUAL if shown == "update_ratio" else None,
            chosen=chosen, step=int(steps[row]), log_x=state.read().log,
        )  # fmt: skip

    # the step follows the newest row while nobody chose one
    drawn_by = label, theme.is_dark(), chosen, state.read().step, state.read().log
    plot_kept("tensor_picture", figure, drawn_by, run, f"{label} of every tensor over training")


def _draw_tensors(trace: xr.Dataset, names: list[str], shown: str, tensor: str, step: int) -> None:
    st.header("Tensor by tensor", anchor=False)
    st.caption("The same numbers as lines. Click one to follow its tensor.")
    short = rows.short_names(names)
    groups, families = rows.families(names)
    blob = curves.pack(
        trace["step"].values, trace[shown].values.T, short, groups=groups, group_names=families, log_y=True
    )
    picture = curves.picture(
        blob, selected=short[names.index(tensor)], step=step, log_x=state.read().log, n_groups=len(families),
        height=HEIGHT + 92, scale=_scale(shown),
    )  # fmt: skip
    of = dict(zip(short, names, strict=True))
    draw(picture, key="tensor_curves", on_change=lambda label: state.update(tensor=of.get(label or "", "")))


def _scale(shown: str) -> theme.Scale:
    label = QUANTITIES[shown]
    thumb = RULE_OF_THUMB if shown == "update_ratio" else None
    return theme.Scale(f"{label[0].upper()}{label[1:]}", chance=thumb, mark="rule of thumb")


def _draw_global(run: Run, trace: xr.Dataset, step: int, others: Others) -> None:
    st.header("All gradients together", anchor=False)
    known = run.can("recipe")
    limit = run.config.optim.clip if known else None
    steps, total = trace["step"].values, training_curves.total_norm(trace["grad_norm"].values)
    row, clipped = int(np.searchsorted(steps, step)), _clipped(trace)
    if not known and "clip_factor" not in trace:
        st.caption("The norm of the whole gradient, as an older version recorded it: after any clipping.")
    elif known and limit is None:
        st.caption("The norm of the whole gradient. This run does not clip, so a spike goes straight into the weights.")
    else:
        norm, factor = theme.fmt(total[row], "norm"), float(trace["clip_factor"].values[row])
        to = "" if limit is None else f" to {limit:g}"
        done = f"clipping leaves {theme.fmt(factor)} of it" if clipped else "no record had to be clipped"
        st.caption(f"The norm of the whole gradient, before it is clipped{to}. At step {step:,} it is {norm}; {done}.")
    lines = {"before clipping" if clipped else "all tensors": total}
    if clipped and head_scores.holds(trace, "grad_norm_clipped"):
        lines["after clipping"] = training_curves.total_norm(trace["grad_norm_clipped"].values)
    runs = [run.name, *(other.name for other, _ in others)]
    series = [
        *((steps, values) for values in lines.values()),
        *((its["step"].values, training_curves.total_norm(its["grad_norm"].values)) for _, its in others),
    ]
    every, values = rows.merge(series)
    blob = curves.pack(
        every, values, [*lines, *runs[1:]], groups=[1, 0][: len(lines)] + [1] * len(others), log_y=True,
        dashes=[0] * len(lines) + list(range(1, len(runs))), dash_names=runs if others else (),
    )  # fmt: skip
    picture = curves.picture(
        blob, step=step, log_x=state.read().log, selectable=False, height=HEIGHT - 100 if clipped else HEIGHT + 92,
        colours=theme.inks(2),
        scale=theme.Scale("Norm of the gradient", chance=limit, mark="clipped to"),
    )  # fmt: skip
    draw(picture, key="total_curve")
    if clipped:
        blob = curves.pack(steps, trace["clip_factor"].values[None], ["clip factor"])
        picture = curves.picture(
            blob, step=step, log_x=state.read().log, selectable=False, height=HEIGHT - 100,
            scale=theme.Scale("Clipping factor: after over before; 1, nothing is clipped", digits=3),
        )  # fmt: skip
        draw(picture, key="clip_curve")


def _draw_heads(run: Run, trace: xr.Dataset, shown: str, row: int) -> None:
    """Q and K move the pattern, V and O what is written: each head's four matrices, at a step and over training."""
    name, label, step = f"head_{shown}", QUANTITIES[shown], int(trace["step"].values[row])
    focus = choosers.focus(trace)
    st.header("Head by head", anchor=False)
    st.caption("Q and K decide where a head looks, V and O what it writes there; they often move at different times.")
    left, right = st.columns([1, 1], gap="large")
    with left:
        matrices = [str(m) for m in trace["matrix"].values]
        band = USUAL if shown == "update_ratio" else None
        draw_heads(trace[name].values[row], matrices, label=label, band=band, focus=focus)
    with right:
        _choose_head(trace, focus)
        values = trace[name].values[:, focus[0], focus[1], :]
        blob = curves.pack(trace["step"].values, values.T, [f"W_{m}" for m in matrices], log_y=True)
        picture = curves.picture(
            blob, step=step, log_x=state.read().log, selectable=False, height=HEIGHT, scale=_scale(shown)
        )
        draw(picture, key="matrix_curves")
    draw_bound(run, focus, key="bound")
    draw_rows(run, focus, step)


def _choose_head(trace: xr.Dataset, focus: tuple[int, int]) -> None:
    every = [theme.head_label(int(layer), int(head)) for layer, head in np.argwhere(head_scores.head_exists(trace))]
    st.selectbox("Head", every, **state.control("head_box", theme.head_label(*focus), state.focus_on))
