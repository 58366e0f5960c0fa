"""Circuits: what do heads do by their weights alone, and whose output do they read?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading, parts
from dashboard.loading import circuits, prompting
from dashboard.sections import circuit_about, circuit_reasons, prompts
from dashboard.sections.ablate_sweep import is_large
from dashboard.sections.circuit_composition import draw_layers
from dashboard.sections.circuit_positions import draw_positions, draw_stripes
from dashboard.sections.circuit_prompt import draw_prompt
from dashboard.sections.circuit_trigrams import draw_trigrams
from dashboard.sections.circuit_words import draw_words
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr


def page() -> None:
    parts.heading("Circuits", "What do heads do by their weights alone, and whose output do they read?")
    st.html(circuit_about.STYLE)
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
        _draw_others(run, trace, key, head)
        return
    try:
        loading.model(run, step)
        prompting.tokenizer(run)
    except ValueError as error:
        parts.refuse(str(error))
    model = run.config.model
    draw_layers(key, trace, head, circuit_reasons.composition(model), circuit_reasons.vocabulary(model))
    draw_words(run, key, head, circuit_reasons.vocabulary(model))
    draw_trigrams(run, key, head)
    left, right = st.columns(2, gap="large")
    with left:
        draw_positions(key, model, head, circuit_reasons.positions(model))
    with right:
        draw_stripes(key, head)
    draw_prompt(run, key, head)


def _draw_others(run: Run, trace: xr.Dataset, key: circuits.Key, head: circuits.Head) -> None:
    """Of a Hugging Face model: what its weights say, where they go by known names, and what is seen from outside."""
    asked = f"circuits {run.dir}"
    if is_large(run) and not st.session_state.get(asked):
        st.caption("This model is large: reading the weights of every head takes its time.")
        st.button("Read its weights", icon=":material/play_arrow:", key="read_weights",
                  on_click=lambda: st.session_state.update({asked: True}))  # fmt: skip
        return
    if why_not := circuits.why_unknown(key):
        st.info("The heads of this model cannot be told apart in its weights, so its circuits are not read. What they "
                "do can be seen and tested on Heads, Find and Ablate.", icon=":material/schema:")  # fmt: skip
        st.text(why_not)
    else:
        one = "One layer: there is no earlier head to read." if len(run.about.layers) < 2 else ""
        draw_layers(key, trace, head, one, "")
        draw_words(run, key, head, "")
        draw_trigrams(run, key, head)
    draw_stripes(key, head)
    st.caption("The parts of a logit are told apart only in models that `tracer train` made.")
