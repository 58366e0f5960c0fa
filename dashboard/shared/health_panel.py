"""Health of a run, a chip on each of its pages: what `tracer.diagnose` found, since when, where, and what helps."""

from __future__ import annotations

from typing import Literal

import streamlit as st

from dashboard import loading, navigation, state, theme
from dashboard.loading import diagnoses
from dashboard.shared import closer, what_helps
from tracer.diagnosis import RULES, Diagnosis, Finding, Severity, verdict
from tracer.store import Run
from tracer.store.stretch import Stretch

SHOWN_HEADS = 8
"""Buttons of a finding; of more heads only the number is said."""
BADGES = {"bad": ("✕", "red"), "watch": ("△", "orange"), "healthy": ("✓", "green"), "early": ("○", "gray")}


def marked(severity: Severity | Literal["healthy", "early"], text: str = "") -> str:
    """A severity as icon, words and colour, in Markdown."""
    icon, colour = BADGES[severity]
    return f":{colour}-badge[{icon} {text or severity}]"


def draw_title(one: Finding, since: str = "", *, bold: bool = False) -> None:
    """Severity and title; of a rule of somebody's own the title is its author's, and text: no link and no picture."""
    if one.kind in RULES:
        said = f"&nbsp;**{one.title}**" if bold else one.title
        st.markdown(f"{marked(one.severity)} {said}{since}")
        return
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center"):
        st.markdown(marked(one.severity), width="content")
        st.text(f"{one.title}{since}", width="content")


def chip(run: Run) -> str:
    """How the run stands in one word, as Markdown; empty while there is nothing to look at."""
    diagnosis = _diagnosis(run)
    found = None if diagnosis is None else verdict(diagnosis)
    if found is None or found.severity == "unknown":
        return ""
    return marked(found.severity, found.text)


def draw_health(run: Run) -> None:
    """The chip; it opens every finding, and what else was looked for."""
    words, diagnosis = chip(run), _diagnosis(run)
    if not words or diagnosis is None:
        return
    opened = st.popover(words, type="tertiary", key="health_chip")
    with opened, st.container(key="health", gap="small"):
        for i, one in enumerate(diagnosis.findings):
            _draw_finding(run, one, i, diagnosis.texts[one.kind])
        _draw_checks(diagnosis)


def _diagnosis(run: Run) -> Diagnosis | None:
    """None where nothing is recorded, or what is cannot be read: the page says so."""
    try:
        return diagnoses.diagnosis(run)
    except (ValueError, OSError):
        return None


def _draw_checks(diagnosis: Diagnosis) -> None:
    """What was looked for and is fine, and what the run holds no numbers for."""
    found = {diagnosis.names.get(one.kind) for one in diagnosis.findings}
    fine, missing = [name for name in diagnosis.looked_for if name not in found], diagnosis.not_measured
    if fine:
        st.markdown("**Looked for, and not found**" if not found else "**Also looked for, and not found**")
        st.markdown("\n".join(f"- {name}" for name in fine))
    if missing:
        st.caption(f"Not measured in this run: {', '.join(missing)}.")
    for why in diagnosis.wrong:
        st.text(f"Went wrong: {why}.")


def _draw_finding(run: Run, one: Finding, i: int, rule: str) -> None:
    """Evidence on the left, advice on the right; all of it is text, because a name in it is its author's."""
    with st.container(key=f"health-finding-{i}"):
        left, right = st.columns([6, 5], gap="medium")
        with left:
            draw_title(one, bold=True)
            with st.container(gap="xsmall"):
                st.text(theme.sentence(one.evidence))
                closer.draw_said(f"health_closer {i}")  # above the button, where a phone shows it
                _draw_places(run, one, i, rule)
        with right, st.container(gap="xsmall"):
            for label, text in one.advice.texts().items():
                st.text(f"{label}: {text}.")
            with st.container(key=f"health-source-{i}"):
                st.text(f"Source: {one.source}.")
        if run.can("recipe") and one.kind in RULES:
            what_helps.draw(run, one, f"{i}")


def _look(one: Finding) -> None:
    """The finding's first head at the finding's step, on the page of patterns."""
    layer, head = one.heads[0]
    state.update(step=one.step, layer=layer, head=head)
    st.switch_page(navigation.page("heads"))


def _closer(run: Run, step: int) -> Stretch | None:
    """What would show every step around this one; None where all are there, or no page can."""
    if not closer.can(run) or (recorded := loading.so_far(run)) is None:
        return None
    steps = closer.around([int(one) for one in recorded["step"].values], step, int(run.meta["step"]))
    part = None if steps is None else closer.part_of(run, *steps)
    return part if isinstance(part, Stretch) else None


def _draw_places(run: Run, one: Finding, i: int, rule: str) -> None:
    """Since when, and in which heads: each a button that goes there; and one that shows the steps in between."""
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center"):
        st.button(f"Since step {one.step:,}", key=f"health_step {i}", icon=":material/schedule:", type="tertiary",
                  help="Go to this step", on_click=state.update, kwargs={"step": one.step})  # fmt: skip
        for layer, head in one.heads[:SHOWN_HEADS]:
            label = theme.head_label(layer, head)
            st.button(label, key=f"health_head {i} {label}", type="tertiary", icon=":material/center_focus_strong:",
                      help="Bring this head into focus", on_click=state.focus_on,
                      args=((layer, head),))  # fmt: skip
        if one.heads:
            st.button(
                "See on Heads", key=f"health_look {i}", type="tertiary", icon=":material/arrow_forward:", args=(one,),
                help=f"The pattern of {theme.head_label(*one.heads[0])} at step {one.step:,}", on_click=_look,
            )  # fmt: skip
        if (more := len(one.heads) - SHOWN_HEADS) > 0:
            st.caption(f"and {more} more head{'s' * (more > 1)}", width="content")
        if (part := _closer(run, one.step)) is not None:
            closer.draw_button(part, "Every step of it", f"health_closer {i}", says_cost=True, type="tertiary")
        with st.popover("What is this?", type="tertiary", icon=":material/help:", width="content"):
            st.text(rule)
