"""Runs: which runs are there, and how do they stand?"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from zlib import crc32

import streamlit as st

from dashboard import jobs, loading, navigation, state
from dashboard.access import read_only
from dashboard.jobs import Started
from dashboard.loading import listing
from dashboard.loading.run_summaries import summary
from dashboard.shared import choosers
from dashboard.shared.export.page_file import draw_story_taking
from dashboard.shared.export.snippets import listed
from dashboard.shared.health_panel import chip
from dashboard.shared.pulse import ticking
from dashboard.shared.run_bar import draw_name
from dashboard.views.runs.manage import arrive, draw_deleted
from dashboard.views.runs.many import MANY, as_blocks, draw_many
from dashboard.views.runs.new_run import draw_fork, draw_new, draw_open, draw_watch
from dashboard.views.runs.not_begun import draw_not_begun, draw_waiting
from dashboard.views.runs.row import chips, draw_row, draw_titles, has_tour
from dashboard.views.runs.welcome import draw_coming, draw_welcome
from tracer.store import Run

QUESTION = "Which runs are there, and how do they stand?"
LOOKED_AT = 20
"""Runs that are read for a tour: each takes some 50 ms the first time."""
DOES = {
    "train": "Reading the text and building the model: this takes a few seconds, longer the first time.",
    "open": "Loading the model and looking at its heads: this takes a while, longer when it is downloaded first.",
}
"""What a process does before there is a run to show, by its command."""
EXAMINING = 0.3
"""Seconds in which runs are examined while rows are drawn, some 50 ms a run: the others when all rows stand."""


def page() -> None:
    choosers.heading("Runs", QUESTION, of_run=False)
    state.read()
    arrive()
    runs = loading.runs()
    if st.session_state.get("forking") and not read_only():
        _draw_forking()
    none = not (runs or jobs.started() or jobs.not_begun())
    draw_welcome(_toured(runs), lambda: _draw_ways([run.name for run in runs]), first=none)
    around = _around(runs)
    ticked = draw_many(runs) if len(runs) > MANY else None
    ticking(lambda: _draw_runs(around, ticked), key="runs")
    _draw_broken()
    if runs:
        draw_story_taking("Runs", QUESTION, listed(state.read().runs),
                          instead=None if len(runs) > MANY else lambda: as_blocks(runs))  # fmt: skip


def _toured(runs: list[Run]) -> Run | None:
    """The newest run that the tour can show, of so many that a reader does not wait for it."""
    return next((run for run in runs[:LOOKED_AT] if has_tour(run)), None)


def _draw_ways(names: list[str]) -> None:
    """What begins a run, brings one here, or lays one over another."""
    if not read_only():
        with st.popover("Train", icon=":material/add:", key="way_train", on_change="rerun"):
            draw_new()
        with st.popover("Watch your own model", icon=":material/visibility:", key="way_watch"):
            draw_watch()
        with st.popover("Open", icon=":material/folder_open:", key="way_open", on_change="rerun"):
            draw_open()
    if 1 < len(names) <= MANY:
        _draw_compare(names)


def _draw_forking() -> None:
    """The form on top, for those who come from a run's own line with a step in mind."""
    with st.container(border=True, key="forking_card"):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.header("Fork a run", anchor=False, width="content")
            st.button("Close", key="fork_close", icon=":material/close:", type="tertiary",
                      on_click=lambda: st.session_state.pop("forking", None))  # fmt: skip
        runs = loading.runs()
        with suppress(ValueError, OSError):  # removed meanwhile
            runs.append(loading.run(st.session_state["forking"]))  # it may lie elsewhere
        draw_fork(runs)


def _draw_broken() -> None:
    """Folders that hold a run.json and cannot be opened, with the reason: names and reasons are never Markdown."""
    broken = listing.found().broken
    if not broken:
        return
    many = f"{len(broken)} folders here" if len(broken) > 1 else "A folder here"
    with st.expander(f"{many} cannot be opened", icon=":material/warning:"):
        for name, reason in broken.items():
            with st.container(gap=None, key=f"name-broken-{crc32(name.encode())}"):
                st.text(name)
            st.text(reason)


def _around(runs: list[Run]) -> tuple[list[str], object]:
    """What decides what stands around the cards."""
    return [run.name for run in runs], st.session_state.get("forking")


def _draw_runs(around: tuple[list[str], object], ticked: list[str] | None) -> None:
    """A card a run, or under a table a card for each that trains or is ticked; drawn again every 2 s, of which the
    browser only gets what changed."""
    runs = loading.runs()
    if _around(runs) != around:
        st.rerun()
    draw_deleted()
    draw_not_begun()
    for one in jobs.started():
        if one.waits:
            draw_waiting(one)
        elif not one.has_run or one.failed:
            _draw_process(one)
    shown = runs if ticked is None else [run for run in runs if run.live or run.name in ticked]
    if shown:
        draw_titles()
    until = monotonic() + EXAMINING
    late = []
    for run in shown:
        in_time = monotonic() < until
        place = draw_row(run, chip(run) if in_time else "")
        if not in_time:
            late.append((run, place))
    for run, place in late:
        place.markdown(chips(run, chip(run)))
    if len(runs) <= 1 and (step := _demo_step(runs)) is not None:
        draw_coming(step)


def _demo_step(runs: list[Run]) -> int | None:
    """How far the demo is, when it is the one thing that goes on here."""
    if runs:
        trains = runs[0].live and runs[0].meta.get("preset") == "demo"
        return summary(runs[0]).step if trains else None
    return 0 if any(one.alive and one.name.startswith("demo") for one in jobs.started()) else None


def _draw_process(one: Started) -> None:
    """A process that has no run to show yet, or that ended badly."""
    with st.container(border=True, key=f"process-{one.name}", gap="xsmall"):
        if one.alive:
            draw_name(one.name, "starting")
            st.caption(DOES.get(one.command, DOES["train"]))
        else:
            draw_name(one.name, "failed" if one.failed else "stopped")
            st.caption("It failed. End of its log:" if one.failed else "It was stopped before it began.")
        if tail := one.tail():
            st.code(tail, language=None, wrap_lines=True)
        if not one.alive:
            st.button("Dismiss", key=f"dismiss {one.name}", on_click=lambda: jobs.forget(one))


def _draw_compare(names: list[str]) -> None:
    """Any two runs, their curves on Training over each other."""
    with st.popover("Compare", icon=":material/compare_arrows:", key="compare_runs"):
        first = st.selectbox("Run", names, key="compare_first")
        second = st.selectbox("Compare with", [name for name in names if name != first], key="compare_second")
        st.button("Compare on Training", key="compare_go", icon=":material/stacked_line_chart:", on_click=_compare,
                  args=(first, second))  # fmt: skip


def _compare(first: str, second: str) -> None:
    state.open_run(first)
    state.update(compare=second)
    st.switch_page(navigation.page("training"))
