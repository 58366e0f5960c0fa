"""Which rows are behind a change, and when it would have come without them: a process of its own asks, the run keeps
the answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import jobs, theme
from dashboard.loading.kept import kept, of_run
from dashboard.shared import closer
from dashboard.shared.mount import draw
from dashboard.shared.plots import table
from dashboard.shared.pulse import ticking
from tracer.analysis.row_dates import dates_moved
from tracer.analysis.training_curves import Curve
from tracer.measures import MEASURES
from tracer.pictures import curves
from tracer.store import Run
from tracer.store.row_effects import rows_path, rows_there

if TYPE_CHECKING:
    import xarray as xr

PROBLEM = "problem rows behind"
PART = re.compile(r"(\d+) of (\d+) updates")
SHOWN = 10
"""Rows of each end."""


def draw_rows_behind(run: Run, phase: Curve) -> None:
    """Of the change of one head's score: the answer, how the asking stands, or the button."""
    assert phase.change is not None
    (layer, head), steps = phase.heads[0], [int(step) for step in phase.steps]
    first, last = phase.change.around(steps)
    label, name = theme.head_label(layer, head), f"{first}-{last}-L{layer}H{head}-{phase.name}"
    going = jobs.looking_at_rows(run)
    mine = going is not None and going.about == f"{first}:{last} {label} {phase.name}"
    busy = going is not None and going.alive
    if name in rows_there(run.dir):
        try:
            _draw_answer(run, name)
        except (ValueError, KeyError, TypeError, IndexError) as error:  # damaged, or somebody else's
            st.text(f"rows/{name}.safetensors cannot be read ({type(error).__name__}): remove it and ask again.")
    elif going is not None and mine and busy:
        ticking(lambda: _draw_progress(going), key="rows_behind", seconds=1.0)
    elif closer.can(run) and not busy:
        st.button(
            "Which rows are behind it?", key="rows_behind_begin", icon=":material/playlist_remove:",
            on_click=_begin, args=(run, first, last, label, phase.name),
            help="Ranks every training row of these steps by what it did to the score, then trains them again without "
                 "the first 1, 5 and 20 % of rows, and without as many at random: about 14 times these steps. "
                 f"`tracer rows {theme.unmarked(run.name)} {first}:{last} --head {label} --measure {phase.name}`",
        )  # fmt: skip
    if going is not None and mine and going.failed:
        st.text("It failed. End of its log:")
        st.code(going.tail(), language=None, wrap_lines=True)
    if message := st.session_state.get(PROBLEM):
        st.text(message)


def _begin(run: Run, first: int, last: int, head: str, measure: str) -> None:
    try:
        jobs.rows(run, first, head, measure, last)
        st.session_state.pop(PROBLEM, None)
    except (ValueError, OSError) as error:
        st.session_state[PROBLEM] = str(error)


def _draw_progress(going: jobs.Started) -> None:
    if not going.alive:
        st.rerun()
    done = PART.findall(going.tail(3))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Training it again: {done[-1][0]} of {done[-1][1]} updates" if done else "Training it again …",
                   width="content")  # fmt: skip
        st.button("Cancel", key="rows_behind_cancel", icon=":material/stop:", type="tertiary",
                  on_click=lambda: jobs.cancel(going))  # fmt: skip


def _draw_answer(run: Run, name: str) -> None:
    from tracer.training.stretch_rows import agreement, answer

    asked_at = rows_path(run.dir, name).stat().st_mtime_ns  # it may be asked anew, for other shares
    told = kept("rows behind", (*of_run(run), name, asked_at), lambda: answer(run, name))
    if told is None:
        return
    of, (step, slope, alike) = told.attrs, agreement(told)
    st.subheader("Which rows are behind it?", anchor=False)
    st.markdown(_found(told))
    left, right = st.columns(2, gap="large")
    with left:
        _draw_rows(told)
        st.caption(
            f"Effect: the score right after an update with the row, minus without it, to first order. The exact effect "
            f"at step {step:,} is {theme.fmt(slope)} times that (correlation {theme.fmt(alike)}). What a row prepares "
            f"for later steps is left out."
        )
    with right:
        if "curve" in told:
            _draw_curves(told)
            st.caption(
                f"Each line is a training from step {of['first']:,}; rows that are left out count for nothing, and the "
                f"mean keeps its denominator. At random: of the same steps and kind. As it was: "
                f"{theme.unmarked(of['same'])}. One seed; `tracer rows {theme.unmarked(run.name)} change --beside "
                f"OTHER-SEEDS` lays several together."
            )


def _found(told: xr.Dataset) -> str:
    """What leaving rows out did, in a sentence."""
    of = told.attrs
    if "date" not in told:
        return f"The rows of steps {of['first']:,} to {of['last']:,}, ranked."
    try:
        moved = dates_moved([told])
    except ValueError:
        return "As it was, the score did not get halfway by the last step that was trained."
    parts = [
        f"**{'at least ' * bool(one.never)}{one.most[0]:+,.0f}** without the top {one.share:g} % of rows "
        f"({one.others[0]:+,.0f} without as many at random)"
        for one in moved
    ]
    return f"How many steps later the change comes: {'; '.join(parts)}."


def _draw_rows(told: xr.Dataset) -> None:
    listed = told.attrs["rows"]
    shown = listed if len(listed) <= 2 * SHOWN else [*listed[:SHOWN], *listed[-SHOWN:]]
    columns = {
        "effect": [row["effect"] for row in shown], "step": [row["step"] for row in shown],
        "row": [" ".join(row["text"].removeprefix("<bos>").split()) for row in shown],
    }  # fmt: skip
    if any(row["mixed_in"] for row in shown):
        columns["mixed in"] = ["✓" if row["mixed_in"] else "" for row in shown]
    table(
        columns, key="rows_behind_table", alt=f"effect on {told.attrs['head']} of the rows at both ends",
        config={
            "effect": st.column_config.NumberColumn(format="%+.1e", width=84),
            "step": st.column_config.NumberColumn(format="%d", width=56),
            "row": st.column_config.TextColumn(width="large"),
            "mixed in": st.column_config.TextColumn(width=70, help="from data.mix"),
        },
    )  # fmt: skip


def _draw_curves(told: xr.Dataset) -> None:
    """The score of each training; the random ones of a share as their mean."""
    share, draw_of, curve = told["share"].values, told["draw"].values, told["curve"].values
    labels, lines = ["as it was"], [curve[0]]
    for one in told.attrs["without"]:
        here = share == one
        labels += [f"without the top {one:g} %", f"{one:g} % at random"]
        lines += [curve[here & (draw_of < 0)][0], curve[here & (draw_of >= 0)].mean(0)]
    dashes = [0, *(i % 2 for i in range(len(lines) - 1))]
    groups = [0, *(1 + i // 2 for i in range(len(lines) - 1))]
    blob = curves.pack(
        told["at"].values, np.stack(lines), labels, groups=groups, dashes=dashes,
        group_names=["as it was", *(f"{one:g} % of rows" for one in told.attrs["without"])],
    )  # fmt: skip
    measure = MEASURES[told.attrs["measure"]]
    picture = curves.picture(blob, scale=theme.Scale(measure.label, measure.unit), selectable=False, height=300)
    draw(picture, key="rows_behind_curves")
