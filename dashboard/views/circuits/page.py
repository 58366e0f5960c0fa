"""Circuits: what do heads do by their weights alone, and whose output do they read?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading, theme
from dashboard.loading import ablation, head_scores, prompt_tokens
from dashboard.shared import choosers, prompts, switches
from dashboard.shared.asking import asked
from dashboard.shared.comparing import choose_other, refuse_to_compare
from dashboard.stage import heads
from dashboard.views.circuits import data
from dashboard.views.circuits.composition import draw_layers
from dashboard.views.circuits.distances import draw_positions, draw_stripes
from dashboard.views.circuits.head_roles import draw_roles
from dashboard.views.circuits.next_token import draw_next, draw_prompt
from dashboard.views.circuits.trigrams import draw_trigrams
from dashboard.views.circuits.vocabulary import draw_words

if TYPE_CHECKING:
    from tracer.store import Run


def page() -> None:
    choosers.heading("Circuits", "What do heads do by their weights alone, and whose output do they read?")
    run = choosers.choose_run()
    if choosers.without_heads(run):
        refuse_to_compare("No heads were recorded in this run.")
        return
    trace = choosers.recorded(run)
    if trace is None:
        return
    if not prompts.can_read(run):
        refuse_to_compare(f"{run.why_not('prompts')}.")
        st.info(f"{run.why_not('prompts')}, so there are no circuits to read here.", icon=":material/code_off:")
        draw_roles(trace, None)
        return
    if why := run.why_not("composition"):
        refuse_to_compare(theme.sentence(why))
    else:
        choose_other(run, run.steps, prompt=False)
    heads.slim(run, lambda: _draw(run), run.steps)


def _draw(run: Run) -> None:
    """Everything below the stage."""
    trace, step = choosers.recorded(run), choosers.step_in_force(run.steps)
    why = "This model is large: reading the weights of every head takes its time."
    if trace is None or not asked(
        f"circuits {run.dir}", "Read its weights", key="read_weights", at_once=not ablation.is_large(run), why=why
    ):
        return
    try:
        loading.model(run, step)
        prompt_tokens.tokenizer(run)
    except ValueError as error:
        choosers.refuse(str(error))
    head, off = choosers.focus(trace, step), switches.in_force(run, step, head_scores.head_exists(trace))
    answered = st.container(key="answered")
    (writing,) = choosers.row(0)
    with st.container(key="circuits_next"):
        draw_next(run, step, off)
    if why_not := data.why_unknown(run, step):
        st.info("The heads of this model cannot be told apart in its weights, so its circuits are not read. What they "
                "do can be seen and tested on Heads, Find and Ablate.", icon=":material/schema:")  # fmt: skip
        st.text(why_not)
        draw_roles(trace, step)
    else:
        draw_layers(run, step, trace, head, off, answered)
        draw_roles(trace, step)
        draw_words(run, step, head, run.why_not("vocabulary"))
        draw_trigrams(run, step, head)
    left, right = st.columns(2, gap="large")
    with left:
        draw_positions(run, step, head)
    with right:
        draw_stripes(run, step, head, off)
    draw_prompt(run, step, head, off, writing)
