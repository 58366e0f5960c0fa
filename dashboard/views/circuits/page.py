"""Circuits: what do heads do by their weights alone, and whose output do they read?"""

from __future__ import annotations

import streamlit as st

from dashboard import loading
from dashboard.loading import ablation, head_scores, prompt_tokens
from dashboard.shared import choosers, prompts, switches
from dashboard.shared.asking import asked
from dashboard.stage import timeline
from dashboard.views.circuits import data
from dashboard.views.circuits.composition import draw_layers
from dashboard.views.circuits.distances import draw_positions, draw_stripes
from dashboard.views.circuits.head_roles import draw_roles
from dashboard.views.circuits.next_token import draw_next, draw_prompt
from dashboard.views.circuits.trigrams import draw_trigrams
from dashboard.views.circuits.vocabulary import draw_words
from tracer.measures.aliases import Head

OFF = "Off: it writes nothing. The next token and its parts follow, readings of weights stay."


def page() -> None:
    choosers.heading("Circuits", "What do heads do by their weights alone, and whose output do they read?")
    chooser, writing = choosers.row([1])
    with chooser:
        run = choosers.choose_run()
    if choosers.without_heads(run):
        return
    trace = choosers.recorded(run)
    if trace is None:
        return
    if not prompts.can_read(run):
        st.info(f"{run.why_not('prompts')}, so there are no circuits to read here.", icon=":material/code_off:")
        draw_roles(trace, None)
        return
    step = timeline.choose_step(run)
    why = "This model is large: reading the weights of every head takes its time."
    if not asked(f"circuits {run.dir}", "Read its weights", key="read_weights", at_once=not ablation.is_large(run),
                 why=why):  # fmt: skip
        return
    try:
        loading.model(run, step)
        prompt_tokens.tokenizer(run)
    except ValueError as error:
        choosers.refuse(str(error))
    head, off = choosers.focus(trace, step), switches.in_force(run, step, head_scores.head_exists(trace))
    with st.container(key="circuits_next"):
        draw_next(run, step, off)
    _draw_switches(head, off)
    if why_not := data.why_unknown(run, step):
        st.info("The heads of this model cannot be told apart in its weights, so its circuits are not read. What they "
                "do can be seen and tested on Heads, Find and Ablate.", icon=":material/schema:")  # fmt: skip
        st.text(why_not)
        draw_roles(trace, step)
    else:
        draw_layers(run, step, trace, head, off)
        draw_roles(trace, step)
        draw_words(run, step, head, run.why_not("vocabulary"))
        draw_trigrams(run, step, head)
    left, right = st.columns(2, gap="large")
    with left:
        draw_positions(run, step, head)
    with right:
        draw_stripes(run, step, head, off)
    draw_prompt(run, step, head, off, writing)


def _draw_switches(head: Head, off: tuple[Head, ...]) -> None:
    """What is off, and the switches."""
    align = "distribute" if off else "right"
    with st.container(
        key="circuits_switches", horizontal=True, horizontal_alignment=align, vertical_alignment="center"
    ):  # fmt: skip
        if off:
            writes = "they write" if len(off) > 1 else "it writes"
            st.caption(f"Without {switches.named(off)}: {writes} nothing, and whatever runs on text is computed anew. "
                       "Readings of weights stay.", width="content")  # fmt: skip
        switches.draw_both(head, off, help=OFF)
