"""Runs: which runs are there, and how do they stand?"""

from __future__ import annotations

from zlib import crc32

import streamlit as st

from dashboard import loading, navigation, parts, processes, state, theme
from dashboard.components.pulse import ticking
from dashboard.components.spark import spark
from dashboard.headsets import THRESHOLD
from dashboard.loading.summaries import Summary, status_word, summary
from dashboard.processes import Started
from dashboard.sections.new_run import draw_coming, draw_fork, draw_hugging_face, draw_new, draw_open, draw_welcome
from dashboard.sections.run_bar import BADGES, draw_resume, draw_stop, pace, short, waking
from dashboard.sections.tour import draw_start
from tracer.presets import PRESETS
from tracer.store import Run, broken_runs

SHOWN = 20
"""Cards before the reader is asked whether to see all."""
DOES = {
    "train": "Reading the text and building the model: this takes a few seconds, longer the first time.",
    "open": "Loading the model and looking at its heads: this takes a while, longer when it is downloaded first.",
}
"""What a process does before there is a run to show, by its command."""
SPARK_SHARE = 0.15
"""A line that has just begun gets at least this much of the width."""
STYLE = """<style>
[class*="st-key-name-"] [data-testid="stText"] { font-weight: 600; font-size: 1.05rem; }
[class*="st-key-parent-"] [data-testid="stText"] { font-size: .875rem; opacity: .65; }
</style>"""


def page() -> None:
    parts.heading("Runs", "Which runs are there, and how do they stand?")
    st.html(STYLE)
    state.read()
    if _is_empty():
        draw_welcome()
        _draw_broken()
        return
    if forking := st.session_state.get("forking"):
        _draw_forking()
    ticking(_draw_runs, key="runs")
    st.space("small")
    left, right = st.columns(2, gap="large")
    with left, st.expander("Train another run", icon=":material/add:"):
        draw_new()
    with right, st.expander("Open a Hugging Face model", icon=":material/deployed_code:"):
        draw_hugging_face()
    with right, st.expander("Open a run directory", icon=":material/folder_open:"):
        draw_open()
    if not forking:
        with left, st.expander("Fork a run", icon=":material/fork_right:"):
            draw_fork(loading.runs())
    with left:
        _draw_broken()


def _draw_forking() -> None:
    """The form on top, for those who come from a run's own line with a step in mind."""
    with st.container(border=True, key="forking_card"):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.header("Fork a run", anchor=False, width="content")
            st.button("Close", key="fork_close", icon=":material/close:", type="tertiary",
                      on_click=lambda: st.session_state.pop("forking", None))  # fmt: skip
        draw_fork(loading.runs())


def _draw_broken() -> None:
    """Folders that hold a run.json and cannot be opened, with the reason: names and reasons are never Markdown."""
    broken = broken_runs()
    if not broken:
        return
    many = f"{len(broken)} folders here" if len(broken) > 1 else "A folder here"
    with st.expander(f"{many} cannot be opened", icon=":material/warning:"):
        for name, reason in broken.items():
            with st.container(gap=None, key=f"name-broken-{crc32(name.encode())}"):
                st.text(name)
            st.text(reason)


def _is_empty() -> bool:
    return not loading.runs() and not processes.started()


def _draw_runs() -> None:
    """A card a run; drawn again every 2 s, of which the browser only gets what changed."""
    if _is_empty():
        st.rerun()
    for one in processes.started():
        if not one.has_run or one.failed:
            _draw_process(one)
    runs = loading.runs()
    comparing = st.session_state.get("comparing")
    if comparing not in [run.name for run in runs]:
        comparing = None
    if comparing:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(f"Compare {comparing} with which other run?")
            st.button("Cancel", key="compare_cancel", on_click=lambda: st.session_state.pop("comparing", None))
    shown = runs if st.session_state.get("all_runs") else runs[:SHOWN]
    for run in shown:
        _draw_card(run, comparing, several=len(runs) > 1)
    if len(runs) <= 1 and (step := _demo_step(runs)) is not None:
        draw_coming(step)
    if len(runs) > len(shown):
        st.button(f"Show all {len(runs)} runs", on_click=lambda: st.session_state.update(all_runs=True))


def _demo_step(runs: list[Run]) -> int | None:
    """How far the demo is, when it is the one thing that goes on here."""
    if runs:
        trains = runs[0].live and runs[0].meta.get("preset") == "demo"
        return summary(runs[0]).step if trains else None
    return 0 if any(one.alive and one.name.startswith("demo") for one in processes.started()) else None


def _draw_process(one: Started) -> None:
    """A process that has no run to show yet, or that ended badly."""
    with st.container(border=True, key=f"process-{one.name}"):
        if one.alive:
            _draw_name(one.name, "starting")
            st.caption(DOES.get(one.command, DOES["train"]))
        else:
            _draw_name(one.name, "failed")
            st.caption("It ended before it was done. Its last words:")
        if tail := one.tail():
            st.code(tail, language=None, wrap_lines=True)
        if not one.alive:
            st.button("Dismiss", key=f"dismiss {one.name}", on_click=lambda: processes.forget(one))


def _draw_card(run: Run, comparing: str | None, several: bool) -> None:
    name = run.name
    with st.container(border=True, key=f"run-{name}"):
        about, progress, loss, best, actions = st.columns([7, 3, 4, 4, 7], gap="medium", vertical_alignment="center")
        with about:
            _draw_name(name, "resuming" if waking(run) else status_word(run))
        try:
            facts = summary(run)
        except ValueError as error:
            st.text(str(error))
            return
        with about:
            st.caption(_about(facts))
            _draw_parent(run)
        with progress:
            _draw_progress(run, facts)
        with loss:
            share = max(facts.share, SPARK_SHARE)
            if facts.losses or facts.kind == "trained":
                spark(facts.losses, key=f"loss-{crc32(name.encode())}", label="training loss", share=share)
        with best:
            _draw_best(facts)
        with actions:
            _draw_actions(run, facts, comparing, several)


def _draw_parent(run: Run) -> None:
    """Where a forked run began, and what is held while it trains."""
    match run.meta.get("parent"):
        case {"run": str(parent), "step": int(step)}:
            clamps = run.meta.get("config", {}).get("clamp") or ()
            held = f", holding {', '.join(map(str, clamps))}" if clamps else ""
            with st.container(gap=None, key=f"parent-{run.name}"):
                st.text(f"From {parent} at step {step:,}{held}")


def _draw_best(facts: Summary) -> None:
    st.caption("Strongest induction head" if facts.induction else "Sharpest head")
    if facts.best is None:
        st.markdown("not measured yet")
        return
    score = theme.fmt(facts.score, "induction")
    st.markdown(f"**{theme.head_label(*facts.best)}** {'scores' if facts.induction else 'entropy'} {score}")


def _draw_name(name: str, status: str) -> None:
    """A name is whatever a folder is called, so it is never Markdown."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"name-{name}"):
        st.text(name)
        icon, colour = BADGES[status]
        st.badge(f"{icon} {status}", color=colour)


def _draw_progress(run: Run, facts: Summary) -> None:
    if facts.kind == "opened":
        n = len(run.steps)
        st.caption(f"{n} checkpoints" if n > 1 else "One set of weights")
        return
    if run.status == "finished":
        st.caption(f"{facts.step:,} steps")
        return
    st.caption(f"Step {facts.step:,}" + ("" if facts.steps is None else f" of {facts.steps:,}"))
    if facts.steps is not None:
        st.progress(facts.share)
    if run.live and (going := pace(run, facts)):
        st.caption(going)
    if run.status == "diverged":
        st.caption("Training says where it broke.")


def _draw_actions(run: Run, facts: Summary, comparing: str | None, several: bool) -> None:
    name = run.name
    with st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        if comparing and comparing != name:
            st.button("Compare with this one", key=f"with {name}", type="primary", icon=":material/compare_arrows:",
                      on_click=_compare, args=(comparing, name))  # fmt: skip
            return
        st.button("Open", key=f"open {name}", icon=":material/grid_view:", on_click=_open, args=(name,))
        if facts.induction and facts.best is not None and facts.score > THRESHOLD and not run.live:
            draw_start(run, key=f"tour {name}")
        if several:
            st.button(
                "Compare", key=f"compare {name}", icon=":material/compare_arrows:", type="tertiary",
                disabled=bool(comparing), on_click=lambda: st.session_state.update(comparing=name),
            )  # fmt: skip
        own = run.meta.get("kind", "trained") == "trained"  # others are somebody's program: not ours to stop or resume
        if own and run.live:
            draw_stop(run)
        elif own and not waking(run):
            draw_resume(run)
    if message := st.session_state.get(f"problem {name}"):
        st.text(message)


def _compare(first: str, second: str) -> None:
    st.session_state.pop("comparing", None)
    state.open_run(first)
    state.update(compare=second)
    st.switch_page(navigation.page("training"))


def _open(name: str) -> None:
    state.open_run(name)
    st.switch_page(navigation.page("heads"))


def _about(facts: Summary) -> str:
    """Only words of ours and numbers: a preset that is not ours is not printed."""
    what = facts.preset if facts.preset in PRESETS else "own configuration"
    if facts.kind != "trained":
        what = f"{facts.kind} {facts.author if facts.author.isidentifier() else 'model'}"
    words = [what, f"{short(facts.n_params)} parameters"]
    words.append(f"{facts.megabytes:,.0f} MB" if facts.megabytes >= 1 else "under 1 MB")
    if facts.created:
        words.append(f"{facts.created:%-d %b %H:%M}".replace(" ", "\N{NO-BREAK SPACE}"))
    return " · ".join(words)
