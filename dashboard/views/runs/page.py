"""Runs: which runs are there, and how do they stand?"""

from __future__ import annotations

import math
from contextlib import suppress
from time import monotonic
from zlib import crc32

import streamlit as st

from dashboard import jobs, loading, navigation, state, theme
from dashboard.access import read_only
from dashboard.jobs import Started
from dashboard.loading import listing
from dashboard.loading.run_summaries import Summary, summary
from dashboard.shared import choosers
from dashboard.shared.export.page_file import draw_story_taking
from dashboard.shared.export.snippets import listed
from dashboard.shared.health_panel import chip
from dashboard.shared.pulse import ticking
from dashboard.shared.run_bar import clamps_of, draw_name, draw_resume, draw_stop, pace, short, standing, steps
from dashboard.shared.spark import spark
from dashboard.shared.tour.steps import draw_start
from dashboard.views.runs.manage import arrive, draw_deleted, draw_labels, draw_more, draw_note
from dashboard.views.runs.many import MANY, as_blocks, draw_many
from dashboard.views.runs.new_run import draw_fork, draw_new, draw_open, draw_watch
from dashboard.views.runs.not_begun import draw_not_begun, draw_waiting
from dashboard.views.runs.welcome import draw_coming, draw_welcome
from tracer.analysis.head_sets import THRESHOLD
from tracer.presets import PRESETS
from tracer.store import Run

QUESTION = "Which runs are there, and how do they stand?"
SEVERAL = 3
"""Runs from which on somebody knows what this is."""
LOOKED_AT = 20
"""Runs that are read for a tour: each takes some 50 ms the first time."""
DOES = {
    "train": "Reading the text and building the model: this takes a few seconds, longer the first time.",
    "open": "Loading the model and looking at its heads: this takes a while, longer when it is downloaded first.",
}
"""What a process does before there is a run to show, by its command."""
EXAMINING = 0.3
"""Seconds in which runs are examined each time that cards are drawn, some 50 ms a run: the next time has the others."""
SPARK_SHARE = 0.15
"""A line that has just begun gets at least this much of the width."""


def page() -> None:
    choosers.heading("Runs", QUESTION)
    state.read()
    arrive()
    runs = loading.runs()
    new = len(runs) < SEVERAL
    if not new:
        with st.session_state["run_bar_place"]:
            _draw_ways()
    if st.session_state.get("forking") and not read_only():
        _draw_forking()
    moving = new and (any(run.live for run in runs) or bool(jobs.started() or jobs.not_begun()))
    if new and not moving:
        draw_welcome(runs, _toured(runs), _draw_ways)
    around = _around(runs)
    ticked = draw_many(runs) if len(runs) > MANY else None
    ticking(lambda: _draw_runs(around, ticked), key="runs")
    if new and moving:
        draw_welcome(runs, _toured(runs), _draw_ways)
    elif not new:
        with st.expander("What is this, and where to begin?", key="about_this", on_change="rerun") as about:
            if about.open:
                draw_welcome(runs, _toured(runs), lambda: None)
    _draw_broken()
    if runs:
        draw_story_taking("Runs", QUESTION, listed(state.read().runs),
                          instead=None if len(runs) > MANY else lambda: as_blocks(runs))  # fmt: skip


def _toured(runs: list[Run]) -> Run | None:
    """The newest run that the tour can show, of so many that a reader does not wait for it."""
    return next((run for run in runs[:LOOKED_AT] if _has_tour(run)), None)


def _has_tour(run: Run) -> bool:
    """Is there an induction head, and nothing under way?"""
    try:
        facts = summary(run)
    except ValueError:
        return False
    formed = facts.induction and facts.stands_out and facts.score > THRESHOLD
    return formed and bool(run.steps) and not run.live and run.can("prompts")


def _draw_ways() -> None:
    """What begins a run, or brings one here."""
    if read_only():
        return
    with st.popover("Train", icon=":material/add:", key="way_train", on_change="rerun"):
        draw_new()
    with st.popover("Watch your own model", icon=":material/visibility:", key="way_watch"):
        draw_watch()
    with st.popover("Open", icon=":material/folder_open:", key="way_open", on_change="rerun"):
        draw_open()


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
    comparing = st.session_state.get("comparing")
    if comparing not in [run.name for run in runs]:
        comparing = None
    if comparing:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(f"Compare {comparing} with which other run?")
            st.button("Cancel", key="compare_cancel", on_click=lambda: st.session_state.pop("comparing", None))
    until = monotonic() + EXAMINING
    for run in runs if ticked is None else [run for run in runs if run.live or run.name in ticked]:
        _draw_card(
            run, comparing, several=len(runs) > 1, health=chip(run, healthy=False) if monotonic() < until else ""
        )
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


def _draw_card(run: Run, comparing: str | None, several: bool, health: str) -> None:
    name = run.name
    with st.container(border=True, key=f"run-{name}"):
        about, progress, loss, best, actions = st.columns(
            [24, 12, 15, 17, 40], gap="small", vertical_alignment="center"
        )
        with about, st.container(gap="xxsmall", key=f"about-{name}"):
            draw_name(name, standing(run), health)
            try:
                facts = summary(run)
            except ValueError as error:
                st.text(str(error))
                return
            st.caption(_about(facts))
            _draw_parent(run)
            draw_note(run)
            draw_labels(run)
        with progress, st.container(gap="xxsmall", key=f"progress-{name}"):
            _draw_progress(run, facts)
        with loss:
            share = max(facts.share, SPARK_SHARE)
            if facts.losses or run.can("recipe"):
                spark(facts.losses, label="training loss", share=share)
        with best, st.container(gap=None, key=f"best-{name}"):
            _draw_best(facts, any_heads=run.can("heads"))
        with actions:
            _draw_actions(run, facts, comparing, several)


def _draw_parent(run: Run) -> None:
    """Where a forked run began, and what is held while it trains."""
    said = []
    match run.meta.get("replay") or run.meta.get("remedy") or run.meta.get("parent"):
        case {"run": str(parent), "first": int(first), "last": int(last), "parts": parts}:
            at = parts if parts is not None else run.meta["replay"].get("losses_part")
            same = "equal to the bit" if at is None else f"parted at step {at:,}"
            said.append(f"steps {first:,} to {last:,} of {parent} again, {same}")
        case {"run": str(parent), "start": int(start), "words": str(words)}:
            said.append(f"again from step {start:,} of {parent}: {words}")
        case {"run": str(parent), "step": int(step)}:
            said.append(f"from {parent} at step {step:,}")
    if clamps := clamps_of(run):
        said.append(f"clamped: {', '.join(clamps)}")
    if said:
        with st.container(gap=None, key=f"parent-{run.name}"):
            text = ", ".join(said)
            st.text(text[0].upper() + text[1:])


def _draw_best(facts: Summary, any_heads: bool) -> None:
    """The strongest induction head where there is one, else the sharpest head."""
    if facts.best is None:
        st.caption("Heads")
        none = "not measured yet" if any_heads else "none were seen"
        st.markdown("cannot be read: Training says why" if facts.damaged else none)
        return
    head, score = theme.head_label(*facts.best), theme.fmt(facts.score, "induction")
    if not facts.induction:
        st.caption("Sharpest head")
        st.markdown(f"**{head}** entropy {score}")
        return
    beside = "" if math.isnan(facts.control) else f", control {theme.fmt(facts.control, 'induction')}"
    if not facts.stands_out:
        st.caption("No induction head stands out")
        st.markdown(f"nearest {head}, {score}{beside}")
    elif facts.score > THRESHOLD:
        st.caption("Strongest induction head")
        st.markdown(f"**{head}** scores {score}{beside}")
    else:
        st.caption("No induction head")
        st.markdown(f"nearest {head}, {score}")


def _draw_progress(run: Run, facts: Summary) -> None:
    if run.why_not("training"):
        n = len(run.steps)
        st.caption(
            f"{n} checkpoints" if n > 1 else "One set of weights" if n else f"{steps(facts.step)}, weights not kept"
        )
        return
    if run.status == "finished":
        st.caption(steps(facts.step))
        return
    of = "" if facts.steps is None else f" of {facts.steps:,}"
    if run.status == "diverged":
        st.caption(f"Broke at step {facts.step:,}{of}")
        return
    st.caption(f"Step {facts.step:,}{of}")
    if facts.steps is not None:
        st.progress(facts.share)
    if run.live and (going := pace(run, facts)):
        st.caption(going)


def _draw_actions(run: Run, facts: Summary, comparing: str | None, several: bool) -> None:
    name = run.name
    with st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        if comparing and comparing != name:
            st.button("Compare with this one", key=f"with {name}", type="primary", icon=":material/compare_arrows:",
                      on_click=_compare, args=(comparing, name))  # fmt: skip
            return
        if run.status == "diverged":
            st.button(
                "See why", key=f"why {name}", icon=":material/troubleshoot:", on_click=_open, args=(name, "training")
            )
        st.button("Open", key=f"open {name}", icon=":material/grid_view:", on_click=_open,
                  args=(name, "training" if run.why_not("heads") else "heads"))  # fmt: skip
        if several and _has_tour(run):
            draw_start(run, key=f"tour {name}")
        if run.can("resume"):
            word = standing(run)
            draw_stop(run, word)
            draw_resume(run, word)
        if several:
            st.button(
                "Compare", key=f"compare {name}", icon=":material/compare_arrows:", type="tertiary",
                disabled=bool(comparing), on_click=lambda: st.session_state.update(comparing=name),
            )  # fmt: skip
        draw_more(run, facts)
    if message := st.session_state.get(f"problem {name}"):
        st.text(message)


def _compare(first: str, second: str) -> None:
    st.session_state.pop("comparing", None)
    state.open_run(first)
    state.update(compare=second)
    st.switch_page(navigation.page("training"))


def _open(name: str, page: str) -> None:
    state.open_run(name)
    st.switch_page(navigation.page(page))


def _about(facts: Summary) -> str:
    """Two lines, only words of ours and numbers: a preset that is not ours is not printed."""
    what = facts.preset if facts.preset in PRESETS else "own configuration"
    if facts.kind != "trained":
        what = f"{facts.kind} {facts.author if facts.author.isidentifier() else 'model'}"
    kept = f"{facts.megabytes:,.0f} MB" if facts.megabytes >= 1 else "under 1 MB"
    made = f" · {facts.created:%-d %b %H:%M}" if facts.created else ""
    return f"{what} · {short(facts.n_params)} parameters  \n{kept}{made}"
