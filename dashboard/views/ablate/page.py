"""Ablate: what breaks when these heads are switched off?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import ablation, head_scores
from dashboard.loading.ablation import Setup
from dashboard.shared import choosers, prompts, switches
from dashboard.shared.comparing import choose_other
from dashboard.shared.mount import draw
from dashboard.stage import heads
from dashboard.views.ablate.beside import draw_beside
from dashboard.views.ablate.card import draw_card
from dashboard.views.ablate.circuit import can_search, draw_circuit
from dashboard.views.ablate.costs import draw_changes, draw_verdict
from dashboard.views.ablate.on_prompt import draw_prompt
from dashboard.views.ablate.patching import draw_patching
from dashboard.views.ablate.sweep import draw_null, draw_sweep
from dashboard.views.ablate.when import draw_when
from tracer.analysis import head_sets
from tracer.config import DRAWS, Clamp
from tracer.measures.aliases import Head
from tracer.pictures import curves, headmap
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

MODES = {
    "zero": "The head writes nothing at all.",
    "mean": "The head writes its average over other sequences there: it knows where it is, but not what it saw. "
    "For repeated tokens these are sequences without a repeat.",
    "resample": f"The head writes what it wrote on another sequence: {DRAWS} seeded draws, averaged. "
    "For repeated tokens it is one without a repeat.",
}
TABS = {"effect": "Effect", "text": "Your text", "heads": "Every head", "when": "When", "set": "Smallest set",
        "patch": "Patching"}  # fmt: skip
GREY, ORANGE = 7, 1
"""Of the colours of lines: as it was, and more."""
SNIPPET = """with tracer.watch(model) as watcher:
    before = model(inputs)
    with watcher.ablate({{({layer}, {head})}}):
        after = model(inputs)"""


def page() -> None:
    choosers.heading("Ablate", "What breaks when these heads are switched off?")
    run = choosers.choose_run()
    if choosers.without_heads(run):
        return
    if not prompts.can_read(run):
        _draw_elsewhere(run)
        return
    choose_other(run, run.steps, prompt=False)
    heads.slim(run, lambda: _draw(run), run.steps)


def _draw(run: Run) -> None:
    """Everything below the stage."""
    trace = choosers.recorded(run)
    if trace is None:
        return
    step, chosen, there = choosers.step_in_force(run.steps), state.read(), head_scores.head_exists(trace)
    try:
        ablation.batches(run).sequences()
        off = switches.in_force(run, step, there)
    except ValueError as error:
        choosers.refuse(theme.sentence(str(error)))
    _draw_clamps(run, step)
    setup = Setup.of(run, step, off, chosen.mode, chosen.frozen)
    answered = st.container(key="answered")
    _draw_controls(off, trace, step)
    try:
        ablation.batches(run).sequences(setup.mode)
    except ValueError as error:
        choosers.refuse(theme.sentence(str(error)))
    with answered:
        costs = draw_verdict(run, setup)
    left, right = st.columns(2, gap="large")
    with left:
        _draw_positions(setup)
    with right:
        draw_changes(run, setup, costs)
        draw_card(run, setup, trace)
    draw_beside(run, setup)
    _draw_tabs(run, setup, trace)


def _draw_tabs(run: Run, setup: Setup, trace: xr.Dataset) -> None:
    """The rest, of which only what is open is computed; a refused prompt ends the page, so this is last on it."""
    draws = {
        "effect": lambda: _draw_effect(run, setup),
        "text": lambda: draw_prompt(run, setup, trace),
        "heads": lambda: draw_sweep(run, setup),
        "when": (lambda: draw_when(run, setup, trace)) if len(run.steps) > 1 else None,
        "set": (lambda: draw_circuit(setup)) if can_search(run, setup) else None,
        "patch": lambda: draw_patching(run, setup),
    }
    offered = [name for name, draw_one in draws.items() if draw_one]
    shown = state.among("section", offered) or ("effect" if setup.off else "heads")
    names = {TABS[name]: name for name in offered}
    state.show("ablate_tab", TABS[shown])
    tabs = st.tabs(
        list(names), key="ablate_tab", on_change=lambda: state.update(section=names[st.session_state["ablate_tab"]])
    )
    for tab, draw_one in zip(tabs, filter(None, draws.values()), strict=True):
        if tab.open:
            with tab:
                try:
                    draw_one()
                except ValueError as error:
                    from tracer.hooks.refusals import CannotWatch  # with torch, which the first page does without

                    if not isinstance(error, CannotWatch):  # heads that nobody said how to switch off
                        raise
                    choosers.refuse(theme.sentence(str(error)))


def _draw_effect(run: Run, setup: Setup) -> None:
    """Against as many other heads, and on the other heads."""
    if not setup.off:
        with st.container(key="only_here_effect"):
            st.caption("Every head is on: switch one off above.")
        return
    st.header("Random control", anchor=False)
    draw_null(setup)
    if ablation.repeats(run):
        _draw_induction(run, setup)


def _draw_clamps(run: Run, step: int) -> None:
    """What is held at this step of the training is held in every number of this page."""
    if run.why_not("recipe"):
        held = [str(clamp) for clamp in map(Clamp.parse, run.meta.get("clamp", ())) if clamp.held(step)]
        if held:
            st.caption(f"This run was clamped at this step: {', '.join(held)}. Here its model runs without.")
        return
    held = [text for text, clamp in zip(run.config.clamp, run.config.clamps, strict=True) if clamp.held(step)]
    if held:
        st.caption(
            f"This run is clamped at this step: {', '.join(held)}. That holds here too, besides what you switch off."
        )


def _draw_elsewhere(run: Run) -> None:
    """What to do where the model is, with the head in focus."""
    trace = choosers.recorded(run)
    if trace is None:
        return
    layer, head = choosers.focus(trace)
    st.info(f"{run.why_not('prompts')}, so its heads cannot be switched off here.", icon=":material/code_off:")
    st.markdown(f"Where the model is, this does it; {theme.head_label(layer, head)} is the head in focus:")
    st.code(SNIPPET.format(layer=layer, head=head), language="python")


def _draw_controls(off: tuple[Head, ...], trace: xr.Dataset, step: int) -> None:
    """Sets of heads, and what off means, in one row."""
    scores, previous = (head_scores.head_means(trace, name, step) for name in ("induction", "previous_token"))
    control = head_sets.random_control(off, head_scores.head_exists(trace))
    with st.container(key="ablate_controls", horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown("Switch off:", width="content")
        _preset("Induction heads", head_sets.induction_heads(scores),
                f"All with a score above {head_sets.THRESHOLD}", "No head has that score at this step")  # fmt: skip
        _preset("Previous-token head", head_sets.previous_token_head(previous),
                "The head that looks most at the token before", "")  # fmt: skip
        _preset("Random control", control, "As many heads of the same layers, drawn at random",
                "Switch some heads off first, in layers that have as many others")  # fmt: skip
        st.markdown(
            "Replace output with", width="content",
            help="\n\n".join(f"**{name.capitalize()}**: {what}" for name, what in MODES.items()),
        )  # fmt: skip
        st.segmented_control(
            "Replace output with", list(MODES), required=True, format_func=str.capitalize, width="content",
            label_visibility="collapsed",
            **state.control("mode_box", state.read().mode, lambda mode: state.update(mode=mode)),
        )  # fmt: skip
        st.toggle(
            "Freeze attention patterns", width="content",
            **state.control("frozen_box", state.read().frozen, lambda frozen: state.update(frozen=frozen)),
            help="Every head attends as it did with nothing off (pattern-preserving, Olsson et al. 2022): only what "
            "these heads pass on as values goes missing. In the last layer it makes no difference.",
        )  # fmt: skip


def _preset(label: str, taken: tuple[Head, ...], what: str, otherwise: str) -> None:
    names = " ".join(theme.head_label(*head) for head in taken)
    st.button(
        label, key=f"preset {label}", disabled=not taken, help=f"{what}: {names}" if taken else otherwise,
        on_click=lambda: state.update(off=taken),
    )  # fmt: skip


def _draw_positions(setup: Setup) -> None:
    """The loss of each token of the main probe, with all heads on and with these off."""
    st.header("Where in the sequence", anchor=False)
    found = ablation.batches(setup.opened)
    name = found.main(setup.mode).name
    seen = found.repeat.second_copy.start if name == "repeat" else None
    lines = {"all heads on": ablation.clean_by_position(setup.opened, setup.step)[name]}
    if setup.off:
        lines[f"without {theme.head_label(*setup.off[0])}" if len(setup.off) == 1 else "heads off"] = ablation.costs(
            setup
        )[name].after_by_position
    picture = curves.picture(
        curves.pack(np.arange(1, len(lines["all heads on"]) + 1), np.stack([*lines.values()]), [*lines],
                    groups=[GREY, ORANGE][: len(lines)]),
        step=seen, scale=theme.Scale("Loss of each token", "nats", digits=3), x_label="token",
        selectable=False, height=230,
    )  # fmt: skip
    draw(picture, key="positions")
    then = "" if seen is None else f" From token {seen} on, the line, tokens come again; that one nothing announces."
    st.caption(f"{theme.sentence(ablation.WORDS[name])}{then}")


def _draw_induction(run: Run, setup: Setup) -> None:
    st.header("What the other heads do then", anchor=False)
    if setup.frozen:
        st.caption(
            "Patterns are held as they were, so no score changes. Switch that off to see which heads depend on which."
        )
        return
    st.caption("Induction scores on repeated tokens, before and with it off. Heads that drop depended on it.")
    before, after = ablation.induction(setup)
    scale = choosers.scale("induction", run, before)
    left, right = st.columns(2, gap="large")
    with left:
        draw(headmap.picture(before, title="Before", scale=scale), key="induction_before")
    with right:
        draw(headmap.picture(after, title="After", scale=scale, off=setup.off), key="induction_after")
