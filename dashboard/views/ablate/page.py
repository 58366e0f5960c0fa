"""Ablate: what breaks when these heads are switched off?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import ablation
from dashboard.loading.ablation import Setup
from dashboard.shared import choosers, head_scores, prompts
from dashboard.shared.comparing import choose_other
from dashboard.shared.mount import draw
from dashboard.views.ablate.beside import draw_beside
from dashboard.views.ablate.card import draw_card
from dashboard.views.ablate.circuit import draw_circuit
from dashboard.views.ablate.on_prompt import draw_prompt
from dashboard.views.ablate.patching import draw_patching
from dashboard.views.ablate.sweep import (
    draw_null,
    draw_replacements,
    draw_sweep,
    probe_title,
)
from dashboard.views.ablate.when import draw_when
from tracer.analysis import head_sets
from tracer.pictures import ablation_grid, curves, headmap
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

MODES = {
    "zero": "The head writes nothing at all.",
    "mean": "The head writes its average over other sequences there: it knows where it is, but not what it saw.",
    "resample": "The head writes what it wrote on another sequence: 5 seeded draws, averaged.",
}
SNIPPET = """with tracer.watch(model) as watcher:
    before = model(inputs)
    with watcher.ablate({{({layer}, {head})}}):
        after = model(inputs)"""


def page() -> None:
    choosers.heading("Ablate", "What breaks when these heads are switched off?")
    chooser, stepper = st.columns([2, 5])
    with chooser:
        run = choosers.choose_run()
    if not prompts.can_read(run):
        _draw_elsewhere(run)
        return
    with stepper:
        step = choosers.choose_step(run)
    choose_other(run, run.steps, prompt=False)
    trace = choosers.recorded(run)
    if trace is None:
        return
    _draw_clamps(run, step)
    selection, scores = state.read(), head_scores.head_means(trace, "induction", step)
    off = _existing(selection.off, head_scores.head_exists(trace))
    controls, results = st.columns([5, 8], gap="large")
    with controls:
        _draw_switches(run, off, scores, trace, step)
    setup = Setup.of(run, step, off, selection.mode, selection.frozen)
    with results:
        _draw_costs(setup)
        on_others = st.container()
    on_other, on_prompt, on_heads = (
        st.container(),
        st.container(),
        st.container(),
    )  # a refused prompt ends the page, so it is drawn last
    with on_heads:
        if off:
            _draw_induction(run, setup)
        draw_sweep(run, setup)
        draw_when(run, setup, trace)
        draw_card(run, setup, trace)
        draw_circuit(run, setup)
        draw_patching(run, setup)
    with on_others:
        _draw_doubts(run, setup)
    with on_other:
        draw_beside(run, setup)
    with on_prompt:
        draw_prompt(run, setup, trace)


def _draw_clamps(run: Run, step: int) -> None:
    """What is held at this step of the training is held in every number of this page."""
    if run.why_not("recipe"):
        return
    held = [text for text, clamp in zip(run.config.clamp, run.config.clamps, strict=True) if clamp.held(step)]
    if held:
        st.caption(f"This run trains with {', '.join(held)}. That is held here too, beside what you switch off.")


def _draw_elsewhere(run: Run) -> None:
    """What to do where the model is, with the head in focus."""
    trace = choosers.recorded(run)
    if trace is None:
        return
    layer, head = choosers.focus(trace)
    st.info(f"{run.why_not('prompts')}, so its heads cannot be switched off here.", icon=":material/code_off:")
    st.markdown(f"Where the model is, this does it; {theme.head_label(layer, head)} is the head in focus:")
    st.code(SNIPPET.format(layer=layer, head=head), language="python")


def _existing(off: tuple[head_sets.Head, ...], there: np.ndarray) -> tuple[head_sets.Head, ...]:
    kept = tuple(h for h in off if h[0] < there.shape[0] and h[1] < there.shape[1] and there[h])
    if gone := [theme.head_label(*h) for h in off if h not in kept]:
        st.warning(f"This model has no {', '.join(gone)}: left out.", icon=":material/block:")
    return kept


def _draw_switches(
    run: Run, off: tuple[head_sets.Head, ...], scores: np.ndarray, trace: xr.Dataset, step: int
) -> None:  # fmt: skip
    st.header("Switch heads off", anchor=False)
    draw(
        ablation_grid.picture(scores, off=off, scale=choosers.scale("induction", run, scores)),
        key="ablate", on_change=lambda heads: state.update(off=tuple(heads)),
    )  # fmt: skip
    if head_scores.holds(trace, "induction"):
        st.caption(head_scores.induction_words(trace, head_scores.default_head(trace, step), step))
    previous = head_scores.head_means(trace, "previous_token", step)
    strong, back, control = (
        head_sets.induction_heads(scores), head_sets.previous_token_head(previous), head_sets.others(off, scores),
    )  # fmt: skip
    with st.container(horizontal=True, gap="xsmall"):
        _preset(
            "Induction heads",
            strong,
            f"All with a score above {head_sets.THRESHOLD}",
            "No head has that score at this step",
        )
        _preset("Previous-token head", back, "The head that looks most at the token before", "")
        _preset("As many other heads", control,
                "A control: as many heads of the same layers, those with the lowest score",
                "A control. Switch some heads off first, in layers that have as many others")  # fmt: skip
    mode = st.segmented_control(
        "Put in their place", list(MODES), required=True, format_func=str.capitalize,
        **state.control("mode_box", state.read().mode, lambda mode: state.update(mode=mode)),
    )  # fmt: skip
    st.caption(MODES[mode or "zero"])
    st.toggle(
        "Hold the other patterns as they were",
        **state.control("frozen_box", state.read().frozen, lambda frozen: state.update(frozen=frozen)),
        help="Every head attends as it did with nothing off (pattern-preserving, Olsson et al. 2022): only what these "
        "heads pass on as values goes missing. In the last layer it makes no difference.",
    )  # fmt: skip


def _preset(label: str, heads: tuple[head_sets.Head, ...], what: str, otherwise: str) -> None:
    names = " ".join(theme.head_label(*h) for h in heads)
    st.button(
        label, key=f"preset {label}", disabled=not heads, help=f"{what}: {names}" if heads else otherwise,
        on_click=lambda: state.update(off=heads),
    )  # fmt: skip


def _draw_costs(setup: Setup) -> None:
    try:
        found = ablation.costs(setup) if setup.off else None
        before = ablation.clean(setup.run, setup.created, setup.step)
    except ValueError as error:
        choosers.refuse(str(error))
        raise AssertionError from error
    note = ablation.batches(setup.run, setup.created).note
    said = {
        "repeat": ("Random tokens, said twice.", "The loss of the second time, where copying gives the answer."),
        "text": ("Text that was kept with the run." if note else "Text that it was not trained on.",
                 "The loss of all tokens."),
    }  # fmt: skip
    for column, name in zip(st.columns(len(before)), before, strict=True):
        with column, st.container(border=True, height="stretch", gap="xsmall"):
            st.markdown(f"**{probe_title(name, setup)}**")
            what, why = said[name]
            st.caption(what, help=why)
            _draw_cost(before[name], found[name] if found else None)
    if note:
        st.caption(f"{note[0].upper()}{note[1:]}: measured on the text kept with the run.")
    if found is None:
        st.info(
            "Every head is on. Switch one off, or take a set: the numbers change at once.", icon=":material/touch_app:"
        )
        return
    if len(setup.off) == 1 and abs(found["repeat"].change.mean) < 0.5:
        st.caption(head_sets.REDUNDANCY)
    _draw_positions(setup, found["repeat"])


def _draw_cost(before: float, cost: ablation.Cost | None) -> None:
    with st.container(horizontal=True, gap="medium"):
        st.metric("Before" if cost else "All heads on", theme.fmt(before, "loss"), width="content")
        if cost is None:
            return
        change = cost.change
        st.metric("After", theme.fmt(cost.after, "loss"), width="content")
        st.metric("Change", theme.signed(change.mean), width="content")
    if not np.isfinite(change.low):
        st.caption("nats a token; 1 sequence, so no interval")
        return
    unsure = ": could be nothing" if change.low <= 0 <= change.high else ""
    st.caption(
        f"nats a token; 95 % interval {theme.signed(change.low)} to {theme.signed(change.high)}{unsure} "
        f"({change.n} sequences)"
    )


def _draw_doubts(run: Run, setup: Setup) -> None:
    """Would another replacement say the same, and would other heads do as much? Drawn after the numbers are there."""
    if not setup.off:
        return
    if not ablation.is_large(run):
        draw_replacements(setup)
    draw_null(setup)


def _draw_positions(setup: Setup, cost: ablation.Cost) -> None:
    seen = ablation.batches(setup.run, setup.created).repeat.second_copy.start
    positions = np.arange(1, len(cost.before_by_position) + 1)
    blob = curves.pack(positions, np.stack([cost.before_by_position, cost.after_by_position]), ["before", "after"])
    draw(
        curves.picture(
            blob, step=seen, scale=theme.Scale("Loss of each token", "nats", digits=3), x_label="token",
            selectable=False, height=230,
        ),
        key="positions",
    )  # fmt: skip
    st.caption(f"Repeated tokens. From token {seen} on, the line, everything has been seen before.")


def _draw_induction(run: Run, setup: Setup) -> None:
    st.header("What the other heads do then", anchor=False)
    if setup.frozen:
        st.caption("Patterns are held as they were, so no score changes. Let them go to see who depends on whom.")
        return
    st.caption(
        "Induction score of every head on repeated tokens. A head that is off still looks; what it saw goes nowhere. "
        "Later heads that lose their score were reading what it wrote."
    )
    before, after = ablation.induction(setup)
    scale = choosers.scale("induction", run, before)
    left, right = st.columns(2, gap="large")
    with left:
        draw(headmap.picture(before, title="Before", scale=scale), key="induction_before")
    with right:
        draw(headmap.picture(after, title="After", scale=scale, off=setup.off), key="induction_after")
