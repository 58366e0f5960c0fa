"""Health of a run: what `tracer.diagnose` found, with its evidence, since when, in which heads, and what helps."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import streamlit as st

from dashboard import navigation, state, theme
from dashboard.loading import diagnoses
from dashboard.shared.entropy_bound import draw_bound
from tracer.diagnosis import RULES, Diagnosis, Finding, Kind, Severity
from tracer.store import Run

SHOWN_HEADS = 8
"""Buttons of a finding; of more heads only the number is said."""
OF_ENTROPY: tuple[Kind, ...] = ("collapse", "one-hot", "vanishing", "stands-in", "scores")
"""Findings beside which the lower bound of entropy is offered, the most telling first."""
COLOURS: dict[Severity, Literal["red", "orange"]] = {"bad": "red", "watch": "orange"}


def marked(severity: Severity, text: str = "") -> str:
    """A severity as icon, words and colour, in Markdown."""
    return f":{COLOURS[severity]}-badge[{theme.status(severity).icon} {text or severity}]"


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def draw_health(run: Run, told: Collection[str] = (), bound: bool = True) -> None:
    """Every finding, or one quiet line that says what was looked for; kinds that the page has `told` are left out.

    `bound`: offer the lower bound of entropy of a head whose entropy is in question.
    """
    diagnosis = diagnoses.diagnosis(run)
    found = [one for one in diagnosis.findings if one.kind not in told]
    if not diagnosis.findings:
        _draw_silence(diagnosis)
    if not found:
        return
    with st.container(border=True, key="health", gap="small"):
        bad = sum(one.severity == "bad" for one in found)
        badges = [marked("bad", f"{bad} bad")] if bad else []
        badges += [marked("watch", f"{len(found) - bad} to watch")] if len(found) > bad else []
        st.markdown(f"**Health** &nbsp;{' '.join(badges)}")
        for i, one in enumerate(found):
            _draw_finding(one, i)
        heads = [head for kind in OF_ENTROPY for one in found if one.kind == kind for head in one.heads]
        if bound and heads:
            focus, step = state.read().focus, state.read().step
            draw_bound(run, focus if focus in heads else heads[0], step, key="health_bound")


def _draw_silence(diagnosis: Diagnosis) -> None:
    words = f"{theme.status('healthy').icon} Health: nothing found. Looked for {', '.join(diagnosis.looked_for)}."
    missing = diagnosis.not_measured
    st.caption(f"{words} Not measured: {', '.join(missing)}." if missing else words)


def _draw_finding(one: Finding, i: int) -> None:
    """Evidence on the left, advice on the right; all of it is text, because a name in it is its author's."""
    with st.container(key=f"health-finding-{i}"):
        left, right = st.columns([6, 5], gap="medium")
        with left:
            st.markdown(f"{marked(one.severity)} &nbsp;**{one.title}**")
            with st.container(gap="xsmall"):
                st.text(sentence(one.evidence))
                _draw_places(one, i)
        with right, st.container(gap="xsmall"):
            for label, text in one.advice.texts().items():
                st.text(f"{label}: {text}.")
            with st.container(key=f"health-source-{i}"):
                st.text(f"Source: {one.source}.")


def _look(one: Finding) -> None:
    """The finding's first head at the finding's step, on the page of patterns."""
    layer, head = one.heads[0]
    state.update(step=one.step, layer=layer, head=head)
    st.switch_page(navigation.page("heads"))


def _draw_places(one: Finding, i: int) -> None:
    """Since when, and in which heads: each a button that goes there."""
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
        with st.popover("What is this?", type="tertiary", icon=":material/help:", width="content"):
            st.text(RULES[one.kind].text)
