"""Which rows of a batch moved the head in focus: the step made again without each, by a process of its own."""

from __future__ import annotations

import json
import math
from typing import Any

import streamlit as st

from dashboard import jobs, theme
from dashboard.access import read_only
from dashboard.loading.kept import kept, of_run
from dashboard.shared.plots import table
from dashboard.shared.pulse import ticking
from tracer.measures import HEAD_MEASURES, MEASURES
from tracer.measures.aliases import Head
from tracer.store import Run

PROBLEM = "problem rows"


def draw_rows(run: Run, head: Head, step: int) -> None:
    """The button, how it stands, or the rows, those that raised the score most first; nothing where no update can be
    made again."""
    if not run.can("recipe") or run.live or step >= run.meta["step"]:
        return
    label = theme.head_label(*head)
    st.subheader(f"Which rows moved {label} at step {step:,}?", anchor=False)
    left, right = st.columns([1, 2], gap="large", vertical_alignment="bottom")
    with left:
        measure = st.selectbox("Score", HEAD_MEASURES, HEAD_MEASURES.index("induction"), key="rows_measure",
                               format_func=lambda name: MEASURES[name].label)  # fmt: skip
    about, going = f"{step} {label} {measure}", jobs.looking_at_rows(run)
    answer = _answer(run, going, about)
    with right:
        if going is not None and going.alive:
            ticking(lambda: _draw_progress(going), key="rows", seconds=1.0)
        elif answer is None and not read_only():
            st.button("Make the step again without each row", key="rows_begin", icon=":material/playlist_remove:",
                      on_click=_begin, args=(run, step, label, measure),
                      help=f"Trains from the nearest kept state to step {step:,}, then leaves out one row at a time. "
                           f"`tracer rows {theme.unmarked(run.name)} {step} --head {label}`")  # fmt: skip
    if message := st.session_state.get(PROBLEM):
        st.text(message)
    if answer is not None:
        _draw_answer(answer)
    elif going is not None and going.failed and going.about == about:
        st.text("It failed. End of its log:")
        st.code(going.tail(), language=None, wrap_lines=True)


def _begin(run: Run, step: int, head: str, measure: str) -> None:
    try:
        jobs.rows(run, step, head, measure)
        st.session_state.pop(PROBLEM, None)
    except (ValueError, OSError) as error:
        st.session_state[PROBLEM] = str(error)


def _draw_progress(going: jobs.Started) -> None:
    if not going.alive:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Making the step again …", width="content")
        st.button("Cancel", key="rows_cancel", icon=":material/stop:", type="tertiary",
                  on_click=lambda: jobs.cancel(going))  # fmt: skip


def _answer(run: Run, going: jobs.Started | None, about: str) -> dict[str, Any] | None:
    """What was found for this step, head and score, if anybody asked since the server began."""
    if going is not None and not going.alive and not going.failed:
        kept("rows", (*of_run(run), going.about), lambda: _read(going.printed()))
    return kept("rows", (*of_run(run), about), lambda: None)


def _read(printed: str) -> dict[str, Any] | None:
    """The JSON that `tracer rows --json` prints, between what else is said."""
    try:
        return json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    except ValueError:
        return None


def _draw_answer(answer: dict[str, Any]) -> None:
    found = sorted(answer["rows"], key=lambda row: -row["effect"])
    moved = answer["after"] - answer["before"]
    st.caption(
        f"The update on these {len(found)} rows moved the score by {theme.signed(moved, theme.digits([moved]))}, to "
        f"{theme.fmt(answer['after'])}. Effect: the score after the step, minus the score without the row. Shares: of "
        f"the head's gradient, along the sum of all rows. Checked against the run: {answer['same']}."
    )
    columns: dict[str, list[Any]] = {
        "effect": [row["effect"] for row in found], "row": [_visible(row["text"]) for row in found],
        "loss": [row["loss"] for row in found],
        **{f"W_{name}": [_share(row["share"][name]) for row in found] for name in found[0]["share"]},
    }  # fmt: skip
    if any(row["mixed_in"] for row in found):
        columns["mixed in"] = ["✓" if row["mixed_in"] else "" for row in found]
    table(
        columns, key="rows_table", alt=f"effect on {answer['head']} of {len(found)} rows of step {answer['step']}",
        config={
            "effect": st.column_config.NumberColumn(format="%+.1e", width=84),
            "row": st.column_config.TextColumn(width="large"),
            "loss": st.column_config.NumberColumn(format="%.2f", width=64),
            **{f"W_{name}": st.column_config.TextColumn(width=60) for name in found[0]["share"]},
            "mixed in": st.column_config.TextColumn(width=70, help="from data.mix"),
        },
    )  # fmt: skip


def _share(share: float | None) -> str:
    return "–" if share is None or math.isnan(share) else f"{share:.0%}"


def _visible(text: str) -> str:
    """On one line, as a table shows it."""
    return " ".join(text.removeprefix("<bos>").split())
