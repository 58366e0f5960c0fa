"""A run in a line of one height: its name, model, loss, heads and what was found, and what can be done with it."""

from __future__ import annotations

import math

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import navigation, state, theme
from dashboard.loading.run_summaries import Summary, summary
from dashboard.shared.run_bar import WELL, badge, draw_resume, draw_stop, pace, short, standing, steps
from dashboard.shared.spark import spark
from dashboard.views.runs.heads_strip import draw_heads
from dashboard.views.runs.manage import draw_more, said_of
from tracer.analysis.head_sets import THRESHOLD
from tracer.store import Run

WIDTHS = (20, 16, 15, 38, 21, 14)
TITLES = ("Run", "Model", "Loss", "Heads, last snapshot (bold: has a role)", "Finding", "")
SPARK_SHARE = 0.15
"""A line that has just begun gets at least this much of the width."""


def draw_titles() -> None:
    """What stands in each column."""
    with st.container(key="runs_titles"):
        for column, title in zip(st.columns(WIDTHS), TITLES, strict=True):
            column.caption(title or "&nbsp;")


def draw_row(run: Run, health: str) -> DeltaGenerator:
    """`health`: its verdict as Markdown; empty where there is none yet. Returned is the place of `chips`."""
    name = run.name
    with st.container(key=f"run-{name}", gap="xsmall"):
        about, model, loss, heads, found, actions = st.columns(WIDTHS, gap="small", vertical_alignment="center")
        with about, st.container(gap=None, key=f"about-{name}"):
            place = _draw_about(run, health)
        try:
            facts = summary(run)
        except ValueError as error:
            heads.text(str(error))
            return place
        with model, st.container(gap=None, key=f"progress-{name}"):
            _draw_model(run, facts)
        with loss:
            if facts.losses or run.can("recipe"):
                spark(facts.losses, label=facts.loss, share=max(facts.share, SPARK_SHARE), height=28)
        with heads:
            draw_heads(run)
        with found, st.container(gap=None, key=f"best-{name}"):
            if run.status == "diverged":
                _draw_broken(facts)
            else:
                _draw_found(facts, any_heads=run.can("heads"))
        with actions:
            _draw_actions(run, facts)
        if message := st.session_state.get(f"problem {name}"):
            st.text(message)
    return place


def chips(run: Run, health: str) -> str:
    """How it stands, as Markdown: of what has ended well its health alone, where that is known."""
    word = standing(run)
    if word == "diverged" or not health:
        return badge(word)
    return health if word in WELL else f"{badge(word)} {health}"


def _draw_about(run: Run, health: str) -> DeltaGenerator:
    """Its name, which opens it; one verdict; where it is from and what somebody wrote about it, in a line."""
    st.button(
        theme.unmarked(run.name), key=f"open {run.name}", type="tertiary", on_click=_open,
        args=(run.name, "training" if run.why_not("heads") else "heads"),
    )  # fmt: skip
    place = st.empty()
    place.markdown(chips(run, health))
    if said := said_of(run):
        with st.container(key=f"parent-{run.name}"):
            st.text(" · ".join(said))
    return place


def _draw_model(run: Run, facts: Summary) -> None:
    """Its size, and how far it is."""
    if facts.heads:
        st.markdown(facts.heads)
    st.caption(f"{short(facts.n_params)} parameters")
    st.caption(_progress(run, facts))
    if run.live and (going := pace(run, facts)):
        st.caption(going)


def _progress(run: Run, facts: Summary) -> str:
    if run.why_not("training"):
        n = len(run.steps)
        return f"{n} checkpoints" if n > 1 else "One set of weights" if n else f"{steps(facts.step)}, weights not kept"
    if run.status == "finished":
        return steps(facts.step)
    if run.status == "diverged":
        return f"Broke at step {facts.step:,}"
    return f"Step {facts.step:,}" + ("" if facts.steps is None else f" of {facts.steps:,}")


def _draw_broken(facts: Summary) -> None:
    """How far the loss went before it was no number."""
    if len(facts.losses) < 2:
        st.caption(f"Loss not finite by step {facts.step:,}")
        return
    first, last = (theme.fmt(loss, "loss") for loss in (facts.losses[0], facts.losses[-1]))
    st.markdown(f"Loss **{first} → {last}**")
    st.caption(f"{facts.loss.removesuffix(' loss')}, by step {facts.loss_step:,}")


def _draw_found(facts: Summary, any_heads: bool) -> None:
    """The strongest induction head where there is one, else the sharpest head."""
    if facts.best is None:
        st.caption(
            "The trace cannot be read" if facts.damaged else "Not measured yet" if any_heads else "No heads seen"
        )
        return
    head, score = theme.head_label(*facts.best), theme.fmt(facts.score, "induction")
    if not facts.induction:
        st.markdown(f"Sharpest head **{head}**")
        st.caption(f"normalised entropy {score}")
    elif facts.stands_out and facts.score > THRESHOLD:
        st.markdown(f"Induction head **{head}**")
        st.caption(score if math.isnan(facts.control) else f"{score} (control {theme.fmt(facts.control, 'induction')})")
    else:
        st.caption("Too early to say" if facts.early else "No induction head")


def _draw_actions(run: Run, facts: Summary) -> None:
    """What its state asks for, and all else in a menu."""
    name, word = run.name, standing(run)
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="xsmall",
                      key=f"deeds-{name}"):  # fmt: skip
        if run.status == "diverged":
            st.button("See why", key=f"why {name}", type="tertiary", on_click=_open, args=(name, "training"))
        if run.can("resume"):
            draw_stop(run, word, quiet=True)
            draw_resume(run, word, quiet=True)
        draw_more(run, facts, toured=has_tour(run))


def has_tour(run: Run) -> bool:
    """Is there an induction head, and nothing under way?"""
    try:
        facts = summary(run)
    except ValueError:
        return False
    formed = facts.induction and facts.stands_out and facts.score > THRESHOLD
    return formed and bool(run.steps) and not run.live and run.can("prompts")


def _open(name: str, page: str) -> None:
    state.open_run(name)
    st.switch_page(navigation.page(page))
