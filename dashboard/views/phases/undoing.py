"""The Phases page by head: which heads, switched off where a phase ends, undo what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import head_scores
from dashboard.shared import choosers
from dashboard.shared.asking import asked, is_wished
from dashboard.shared.mount import draw
from dashboard.views.phases import data
from tracer.analysis.training_curves import Curve
from tracer.analysis.undoing import Undoing
from tracer.pictures import curves, headmap
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr


def draw_undoing(run: Run, trace: xr.Dataset, phase: Curve) -> None:
    """The phase's own change of the loss by position beside that of switching a head off, and their dot product."""
    assert phase.change is not None
    focus = choosers.focus(trace)
    label = theme.head_label(*focus)
    start, end = phase.change.around(run.steps)
    st.header("What the phase did, and which heads undo it", anchor=False)
    if start == end:
        st.caption("This run kept no two snapshots around the window, so there is nothing to compare.")
        return
    st.caption(
        f"The number: change in loss along d with the head off at step {end:,} (zero ablation). **Below 0 it undoes "
        f"the phase**; near 0 it has nothing to do with it.",
        help=f"d points from the losses at step {start:,} to those at step {end:,}, by position, and has length 1: the "
             f"before-and-after vector of Olsson et al. 2022, of means by position instead of single tokens. Any head "
             f"that the text needs undoes a little.",
    )  # fmt: skip
    everyone = [(int(layer), int(head)) for layer, head in np.argwhere(head_scores.head_exists(trace))]
    whole = f"undoing of {run.dir.resolve()}"
    heads = everyone if data.cheap(run, len(everyone)) or is_wished(whole) else [focus]
    if not asked(f"one {whole}", f"Switch {label} off", key="undo_one",
                 at_once=len(heads) > 1 or len(everyone) == 1 or data.cheap(run, 1)):  # fmt: skip
        return
    try:
        found = data.undone(run, start, end, tuple(heads))
    except ValueError as error:
        st.text(str(error))
        return
    left, right = st.columns([4, 5], gap="large")
    with left:
        _draw_dots(found, heads, trace, focus)
        if len(heads) < len(everyone):
            asked(whole, "Every head", key="undo_all",
                  help="Switches each head off in turn: one pass over the held-out text a head.")  # fmt: skip
    with right:
        shown = focus if focus in heads else heads[0]
        _draw_lines(found.moved, found.without[heads.index(shown)], theme.head_label(*shown))


def _draw_dots(found: Undoing, heads: list[tuple[int, int]], trace: xr.Dataset, focus: tuple[int, int]) -> None:
    values = np.full((trace.sizes["layer"], trace.sizes["head"]), np.nan)
    for head, dot in zip(heads, found.dots, strict=True):
        values[head] = dot
    far = float(np.nanmax(np.abs(values))) or 1.0
    picture = headmap.picture(
        values, title="Change in loss with the head off, along d", selected=focus,
        scale=theme.Scale("Along d", "nats", -far, far, "change", 2),
    )  # fmt: skip
    draw(picture, key="undoing", on_change=state.focus_on)
    best, moved = (
        int(found.dots.argmin()),
        f"The phase moved the losses by {theme.fmt(found.distance, 'loss')} nats along d",
    )
    if found.dots[best] < 0:
        back = f"{theme.head_label(*heads[best])} off takes {-found.dots[best] / found.distance:.0%} of that back"
        st.caption(f"{moved}. {back}; heads that do the same work stand in for each other.")
    else:
        st.caption(f"{moved}; no head alone takes any of it back.")


def _draw_lines(moved: np.ndarray, without: np.ndarray, label: str) -> None:
    blob = curves.pack(np.arange(1, len(moved) + 1), np.stack([moved, without]), ["the phase", f"{label} off"])
    picture = curves.picture(
        blob, selectable=False, x_label="position", height=260,
        scale=theme.Scale("Change in loss", "nats", chance=0.0, mark="no change"),
    )  # fmt: skip
    draw(picture, key="undoing_lines")
