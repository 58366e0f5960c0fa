"""The Phases page by position: the loss at each step and position, and the way of the losses through a plane."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard import state
from dashboard.shared.plots import plot
from dashboard.views.phases import data, figures
from tracer.analysis.training_curves import Curve
from tracer.store import Run

SLIVER = 0.15
"""A phase that takes less of the picture's width than this is too small to see there."""
SOURCE = "Olsson et al. 2022, 2D in-context plot and its derivative"


def draw_surfaces(run: Run, phase: Curve | None) -> None:
    """Loss and slope side by side, as measured or less what they were when the phase began."""
    ends = _around(run, phase)
    st.header("Loss by position", anchor=False)
    less = None
    if ends is not None:
        since = state.read().since
        shown = "since" if since else "as measured"
        st.segmented_control(
            "Loss by position", ["as measured", "since"], required=True, label_visibility="collapsed",
            format_func=lambda one: one if one == "as measured" else f"change since step {ends[0]:,}",
            **state.control("surface_box", shown, lambda one: state.update(since=one == "since")),
        )  # fmt: skip
        less = ends[0] if since else None
    st.caption(
        "On held-out text; position: how many tokens the model has read. Slope below 0: more context helps."
        f"{' Dashed: the window of the phase.' if ends else ''}",
        help="The same few texts at every step: a stripe through all steps is a hard or an easy token, which the "
             f"change since a step takes off. Source: {SOURCE}.",
    )  # fmt: skip
    taken = f", less step {less:,}" if less is not None else ""
    named = {"loss": f"Loss{taken}", "slope": f"d loss / d ln(position){taken}"}
    for column, (quantity, label) in zip(st.columns(2, gap="large"), named.items(), strict=True):
        found = data.surface(run, quantity, less)
        if found is None:
            continue
        signed = quantity == "slope" or less is not None
        figure = figures.surface(
            found.steps, found.values, label=label, limits=figures.limits(found.shown, signed=signed), signed=signed,
            window=ends, step=state.read().step, log_x=state.read().log,
        )  # fmt: skip
        with column:
            plot(figure, key=f"surface_{quantity}", alt=f"{label} at each step and position", on_pick=go,
                 numbers=lambda found=found: _columns(found), over_steps=True)  # fmt: skip


def _columns(found: data.Surface) -> dict[str, list[float]]:
    """A row a step, a column a position."""
    return {"step": found.steps.tolist(), **{str(i + 1): column.tolist() for i, column in enumerate(found.values.T)}}


def draw_path(run: Run, fall: Curve | None, phase: Curve | None) -> None:
    """The path from the start, or from where the loss has fallen, where a phase is else too small to see."""
    st.header("Path of the losses", anchor=False)
    end = fallen(fall) if fall else 0
    ends = _around(run, phase)
    since, why = 0, ""
    if end and data.path(run, end) is not None:
        since = end if _choose_part(run, end, ends) == "late" else 0
        why = f" By step {end:,} the loss has fallen, so far that it hides what follows."
    picture, words = st.columns([8, 5], gap="large")
    with words:
        st.caption(
            "A point is the loss by position at one step, on the first two principal components of all steps. A bend "
            "is a change in what the model learns."
            f"{why}{' Thick: the window of the phase.' if ends else ''}"
        )
        st.caption(
            "Source: Olsson et al. 2022, with single tokens; these are means over texts. Where the components hold a "
            "small share of the variance, much of the movement is not seen."
        )
    found = data.path(run, since)
    with picture:
        if found is None:
            st.caption("Too few steps for a path.")
            return
        figure = figures.path(found.steps, found.points, found.shares, window=ends, step=state.read().step)
        one, two = found.points.T.tolist()
        plot(figure, key="loss_path", alt="The losses by position at each step, on their first two components",
             on_pick=go, numbers=lambda: {"step": found.steps.tolist(), "1st": one, "2nd": two})  # fmt: skip


def _around(run: Run, phase: Curve | None) -> tuple[int, int] | None:
    """The recorded steps around the window of a phase."""
    found = data.losses(run)
    return None if found is None or phase is None or phase.change is None else phase.change.around(found.steps)


def fallen(curve: Curve) -> int:
    """The first step at which a loss has gone 90 % of its way down to its lowest value."""
    first = curve.values[0]
    return int(curve.steps[np.argmax(curve.values <= first - 0.9 * (first - curve.values.min()))])


def _choose_part(run: Run, end: int, ends: tuple[int, int] | None) -> str:
    """All steps, or the late ones; opens where the phase can be seen."""
    small = ends is not None and ends[1] > end and data.breadth(run, ends) < SLIVER
    shown = state.read().path or ("late" if small else "all")
    st.segmented_control(
        "Path of the losses", ["all", "late"], required=True, label_visibility="collapsed",
        format_func=lambda one: "every step" if one == "all" else f"from step {end:,}",
        **state.control("path_box", shown, lambda one: state.update(path=one)),
    )  # fmt: skip
    return shown


def go(step: int) -> None:
    """To the step of a point that was clicked."""
    state.update(step=step)
