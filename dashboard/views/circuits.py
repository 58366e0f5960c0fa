"""Circuits: what do heads do by their weights alone, and whose output do they read?"""

from __future__ import annotations

import streamlit as st

from dashboard import parts
from dashboard.loading import circuits
from dashboard.sections import circuit_reasons, prompts
from dashboard.sections.ablate_sweep import is_large
from dashboard.sections.circuit_composition import draw_composition, draw_copying
from dashboard.sections.circuit_positions import draw_positions, draw_stripes
from dashboard.sections.circuit_prompt import draw_prompt
from dashboard.sections.circuit_words import draw_words
from tracer.store import Run


def page() -> None:
    parts.heading("Circuits", "What do heads do by their weights alone, and whose output do they read?")
    chooser, stepper = st.columns([2, 5])
    with chooser:
        run = parts.choose_run()
    trace = parts.recorded(run)
    if trace is None:
        return
    if not prompts.can_read(run):
        st.info(f"{prompts.why_not(run)}, so there are no circuits to read here.", icon=":material/code_off:")
        return
    with stepper:
        step = parts.choose_step(run)
    key, head = circuits.key_of(run, step), parts.focus(trace, step)
    if run.about.kind != "trained":
        _draw_others(run, key, head)
        return
    model = run.config.model
    left, right = st.columns([3, 2], gap="large")
    with left:
        draw_composition(key, trace, head, circuit_reasons.composition(model))
    with right:
        draw_copying(key, head, circuit_reasons.vocabulary(model))
    draw_words(run, key, head, circuit_reasons.vocabulary(model))
    left, right = st.columns(2, gap="large")
    with left:
        draw_positions(key, model, head, circuit_reasons.positions(model))
    with right:
        draw_stripes(key, head)
    draw_prompt(run, key, head)


def _draw_others(run: Run, key: circuits.Key, head: tuple[int, int]) -> None:
    """Of other people's models only what can be seen from outside: their weights have names of their own."""
    st.info(
        "This model keeps its weights under names of its own, so its circuits are not read. "
        "What its heads do can be seen and tested on Heads, Find and Ablate.",
        icon=":material/schema:",
    )
    asked = f"stripes {run.dir}"
    if is_large(run) and not st.session_state.get(asked):
        st.button("Measure attention by distance", icon=":material/play_arrow:",
                  on_click=lambda: st.session_state.update({asked: True}))  # fmt: skip
        return
    draw_stripes(key, head)
