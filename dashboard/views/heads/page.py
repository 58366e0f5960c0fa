"""Heads: what does every head look at, for any prompt, at any step?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import streamlit as st

from dashboard import loading, navigation, state, theme
from dashboard.loading import ablation, head_scores, heads_off, prompt_attention, recorded_prompts, roles
from dashboard.shared import choosers, patterns, prompts, switches
from dashboard.shared.answer import draw_answer
from dashboard.shared.comparing import choose_other, draw_comparison
from dashboard.shared.export.page_file import draw_taking
from dashboard.shared.guesses import draw_next
from dashboard.shared.history import draw_history
from dashboard.shared.mount import draw
from dashboard.stage import heads, timeline
from dashboard.theme import unmarked
from dashboard.views.heads.by_period import draw_induction
from dashboard.views.heads.finder import choose_heads, draw_found
from dashboard.views.heads.head_answer import answer, says_loss
from dashboard.views.heads.token_view import draw_reading
from dashboard.views.heads.why_here import draw_why
from tracer.measures import HEAD_MEASURES
from tracer.measures.aliases import Head
from tracer.pictures.atlas import Scored
from tracer.pictures.pattern import Cell
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr
    from streamlit.delta_generator import DeltaGenerator

Read = Callable[[int, tuple[Head, ...]], PromptPatterns]
"""Every head on a prompt, at a step, with some of them off."""
SCORED: dict[Scored, str] = {
    "": "No pattern can change after the last layer",
    "anew": "Later patterns, scores and roles are computed anew",
    "recorded": "Later patterns are computed anew; scores and roles were recorded with all heads on",
}
"""What follows from heads that are off."""
TALL = 16
"""Layers from which on the atlas is as high as a pattern, and what else there is stands beside it."""


def page() -> None:
    choosers.heading("Heads", "What does every head look at: on your own text, at any step of training?")
    run = choosers.choose_run()
    if choosers.without_heads(run):
        return
    steps = _steps(run)
    if steps is None:
        choosers.recorded(run)
        st.info(f"{run.why_not('prompts')}, and no patterns were kept.", icon=":material/visibility_off:")
        return
    if loading.so_far(run) is not None:
        choose_other(run, steps)
    choosers.tick(run, lambda: _draw(run))


def _steps(run: Run) -> list[int] | None:
    """At which there are patterns of a prompt; None where the model cannot be run and no prompt was kept."""
    if prompts.can_read(run):
        return run.steps
    try:
        kept = recorded_prompts.prompts(run)
    except ValueError:
        return None
    return kept.steps if kept.names else None


def _choose_prompt(run: Run, place: DeltaGenerator, refuse: Callable[[str], NoReturn]) -> Read:
    if (name := None if prompts.can_read(run) else prompts.choose_kept(run, place)) is not None:
        return lambda step, off: recorded_prompts.of_prompt(run, step, name)
    encoded = prompts.choose_text(run, place=place, refuse=refuse)
    return lambda step, off: prompt_attention.of_text(run, step, encoded.tokens, encoded.strings, off)


def _draw(run: Run) -> None:
    """The stage and everything below; in a live run this moves along with the newest snapshot."""
    trace, steps = choosers.recorded(run), _steps(run)
    if trace is None:
        return
    if not steps:
        st.info(f"{unmarked(run.name)} has no snapshot yet: the first one is written when training starts.")
        return
    room = timeline.make_room(steps)
    step = choosers.settle_step(steps)

    def refuse(message: str) -> NoReturn:
        if len(steps) > 1:
            with room:
                timeline.draw_timeline(run, steps)
        choosers.refuse(message)

    writing, colour, finder = choosers.row(0, 300, 280)
    with colour:
        offered = head_scores.head_measures(trace) or list(HEAD_MEASURES)
        measure = choosers.choose_measure(run, "Colour heads by", offered)
    choose_heads(run, finder)
    read = _choose_prompt(run, writing, refuse)
    lit = draw_found(trace)
    switched = prompts.can_read(run)
    try:
        before = read(step, ())
    except ValueError as error:  # a damaged snapshot: the others can still be gone to
        refuse(str(error))
    off = switches.in_force(run, step, head_scores.head_exists(trace)) if switched else ()
    shown = read(step, off) if off else before

    def see(step: int) -> PromptPatterns:
        return read(step, shown.off)

    focus = choosers.focus(trace, shown.step)
    with st.container(key="of_a_step"):
        draw_answer(answer(run, trace, shown, before, measure, focus))
    draw_comparison(run, shown, see, focus)
    draw_next(run, shown, before, quiet=says_loss(trace, shown, focus))
    long, tall = patterns.is_long(shown), len(shown.causal) > TALL
    with st.container(key="heads_body"):
        left, right = st.columns([1, 1], gap="large")
    with left:
        film = _draw_atlas(run, trace, shown, measure, focus, lit, switched)
    beside, pin = (before, _pin(run, trace, before, focus)) if switched else (None, None)
    if long:
        below = st.columns([1, 1], gap="large")
        with right if tall else below[0]:
            patterns.draw_overview(shown, focus)
        with below[0] if tall else below[1]:
            near = patterns.draw_window(shown, focus, beside, pin)
        with below[1] if tall else st.container():
            draw_reading(run, shown, focus)
    else:
        with right:
            near = patterns.draw_whole(shown, focus, beside, pin)
        with st.container() if tall else right:
            draw_reading(run, shown, focus)
    with right if long or tall else left, st.container(key="over_training"):
        if shown.off:
            st.caption("Below: as it was recorded, with all heads on.")
        draw_history(run, trace, measure, focus, shown.step)
        draw_induction(run, trace, focus, shown.step)
    draw_why(run, shown, focus, near, pin)
    draw_taking(run, shown, focus, measure)
    with room:  # drawn last: its frames take longest
        timeline.draw_film(run, trace, steps, see, focus, measure, film)
    heads_off.complete(run, trace, shown)


def _pin(run: Run, trace: xr.Dataset, before: PromptPatterns, head: Head) -> Cell | None:
    """The cell that is explained until somebody pins one: with all heads on, so that it stays when some go off."""
    if ablation.is_large(run):
        return None
    named = roles.of_head(trace, head, before.step)
    copies = named is not None and named[1] and named[0].role.measure == "induction"
    return patterns.strongest(before, head, beyond_first=copies)


def _draw_atlas(
    run: Run, trace: xr.Dataset, shown: PromptPatterns, measure: str, focus: Head, lit: set[Head] | None,
    switched: bool,
) -> DeltaGenerator | None:  # fmt: skip
    """Thumbnails from the prompt; numbers from the run's own probes at the recorded step nearest to the snapshot.

    Returned is, with heads off, room for the button that films them.
    """
    by_measure = state.read().order == "measure"
    picture = heads.picture(run, trace, shown, measure, focus, shown.step, order=state.read().order, lit=lit)
    with st.container(
        key="atlas_head", horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", gap="xsmall"
    ):  # fmt: skip
        st.header(
            "All heads on this prompt", anchor=False, width="content",
            help=_how(run, trace, shown, measure, bool(picture.cue["roles"]["measures"])),
        )  # fmt: skip
        switches.draw_all_on(shown.off)
        st.toggle(
            "Strongest first",
            **state.control("order_box", by_measure, lambda on: state.update(order="measure" if on else "index")),
        )  # fmt: skip
    draw(picture, key="atlas", on_change=switches.take if switched else state.focus_on)
    if not shown.off:
        return None
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(navigation.page("ablate"), label="Test it on Ablate, with controls",
                     icon=":material/arrow_forward:", width="content")  # fmt: skip
        film = st.container(width="content")
        if heads_off.waits(run, trace, shown):
            st.button(
                "Score every head again", key="score_again", icon=":material/refresh:", type="tertiary",
                help="Runs the model on the sequences of the record, with these heads off. "
                "It is not done unasked, because this model is large.", on_click=heads_off.ask,
            )  # fmt: skip
        if heads_off.stays(run, trace, shown):
            st.caption("Scores and roles: recorded with all heads on.", width="content")
    return film


def _how(run: Run, trace: xr.Dataset, shown: PromptPatterns, measure: str, has_scores: bool) -> str:
    """How a tile is read, as Markdown."""
    what = "token" if run.about.d_vocab is not None else "position"
    label = theme.unmarked(choosers.measure_of(run, measure).label.lower())
    says = f"The number is its {label}, measured on {theme.unmarked(choosers.probe(run, measure))}."
    if has_scores:
        says = f"The colour is its {label}, the number the score of its role."
    tile = f"A tile is a head: each row is a {what}, each column a {what} that it may look at. {says}"
    return f"{tile} *Strongest first* sorts the heads inside each layer. {_off(trace, shown)}"


def _off(trace: xr.Dataset, shown: PromptPatterns) -> str:
    """What follows from the heads that are off; empty where all are on."""
    if not shown.off:
        return ""
    return f"What is off writes nothing. {SCORED[heads_off.scores(trace, shown, shown.step).scored]}."
