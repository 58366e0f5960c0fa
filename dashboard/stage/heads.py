"""Every head on the prompt, small: as the atlas of Heads, and as the strip on pages that show what was recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import head_scores, heads_off, prompt_attention, prompt_tokens, recorded_prompts
from dashboard.loading.prompt_film import CHEAP_BYTES
from dashboard.shared import choosers, prompts, switches
from dashboard.shared.asking import asked
from dashboard.shared.mount import draw
from dashboard.stage import timeline
from dashboard.streamlit_internals import lasting
from tracer.measures.aliases import Head
from tracer.pictures import atlas
from tracer.pictures.picture import Picture
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run, nearest_row

if TYPE_CHECKING:
    import xarray as xr

SAID = 32
"""Characters of the prompt in a line."""
See = Callable[[int], PromptPatterns]
Film = tuple[PromptPatterns, See]
"""Every head on the prompt, now and at any other step."""
ROOMS = {9: "strip_row", 18: "strip_rows"}
"""The key of the strip's room, by the most heads that it holds on a wide page."""


def slim(run: Run, draw_below: Callable[[], None], steps: list[int] | None = None) -> None:
    """The timeline, the strip, and below them a page: over every record, whose page waits for no pattern.

    Or over `steps`: a page that reads the model at one of them comes after the strip, and says itself what cannot be.
    """
    trace = loading.so_far(run)
    at = _records(trace) if steps is None else steps
    above = timeline.begin(run, at) if at or steps is not None else None
    room = None
    if trace is not None and head_scores.has_heads(trace) and head_scores.head_measures(trace) and _holds(run):
        n = int(head_scores.head_exists(trace).sum())
        with lasting():
            room = st.container(key=next((key for most, key in ROOMS.items() if n <= most), "strip_many"), gap=None)
            room.html("<i></i>")  # an empty container takes no room

    def draw_stage() -> Film | None:
        film = None
        if room is not None and trace is not None:
            with room:
                film = _draw_strip(run, trace, at, quiet=steps is not None)
        if above is not None:  # after the strip: until that has the step, its patterns are those of the film
            with above:
                timeline.draw_timeline(run, at)
        return film

    if steps is None:
        draw_below()
        film = draw_stage()
    else:
        film = draw_stage()
        draw_below()
    if room is not None and trace is not None and film is not None:
        with room, lasting(), st.container(key="strip_film"):
            timeline.serve_film(run, trace, *film)
        heads_off.complete(run, trace, film[0])


def _records(trace: xr.Dataset | None) -> list[int]:
    return [] if trace is None else trace["step"].values.tolist()


def picture(
    run: Run, trace: xr.Dataset, shown: PromptPatterns, measure: str, focus: Head, step: int, **look: Any
) -> Picture:  # fmt: skip
    """The heads as `shown`, with numbers and roles of the record nearest to a step, or with heads off as they are."""
    now = heads_off.scores(trace, shown, step)
    values = {name: head_scores.head_means(now.trace, name, now.step) for name in head_scores.head_measures(trace)}
    return atlas.picture(
        prompt_attention.atlas(shown, f"{run.stamp} {step} {now.scored}", values), selected=focus, measure=measure,
        scales={name: choosers.scale(name, run, of) for name, of in values.items()}, off=shown.off,
        switches=prompts.can_read(run), roles=heads_off.roles_of(now), scored=now.scored, **look,
    )  # fmt: skip


def _holds(run: Run) -> bool:
    """Is there a prompt that the heads can be shown on?"""
    if prompts.can_read(run):
        return bool(run.steps)
    try:
        kept = recorded_prompts.prompts(run)
    except ValueError:
        return False
    return bool(kept.names and kept.steps)


def _is_cheap(run: Run) -> bool:
    """May a snapshot be loaded for it unasked? As of a film, by the bytes of its weights."""
    return not prompts.can_read(run) or 4 * run.meta.get("n_params", 0) <= CHEAP_BYTES


@lasting()
def _draw_strip(run: Run, trace: xr.Dataset, steps: list[int], quiet: bool) -> Film | None:
    """Returned is what a film of it is made from; None where there is none. `quiet`: the page says what cannot be."""
    if not asked(f"strip {run.dir}", "Show every head on the prompt", key="strip_all", at_once=_is_cheap(run)):
        return None
    step = choosers.step_in_force(steps)
    try:
        shown, text, see = _shown(run, trace, step, quiet)
    except ValueError as error:  # a damaged snapshot: the others can still be gone to
        if not quiet:
            st.text(str(error))
        return None
    measure = choosers.measure_in_force(head_scores.head_measures(trace))
    strip = picture(run, trace, shown, measure, choosers.focus(trace, step), step, slim=True)
    draw(strip, key="strip", on_change=switches.take if prompts.can_read(run) else state.focus_on)
    with st.container(key="strip_note", horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(_note(run, trace, shown, text, step, not quiet), width="content")
        switches.draw_all_on(shown.off)
    return None if run.live else (shown, see)  # every snapshot would send all of it again


def _note(run: Run, trace: xr.Dataset, shown: PromptPatterns, text: str, recorded: int, below: bool) -> str:
    """What the strip is of, and with heads off what that does to the loss on its text; as Markdown. `below`: more was
    recorded."""
    of = f"on {text}, step {shown.step:,}"
    roles_of = "Roles" if recorded == shown.step else f"Roles (of step {recorded:,})"
    if not shown.off:
        return f"Every head {of}.{'' if recorded == shown.step else f' {roles_of}.'}"
    words, now = f"Without {switches.named(shown.off)}, {of}.", prompt_attention.said(run, shown)
    before = prompt_attention.said(run, replace(shown, off=()))
    if now is not None and before is not None and math.isfinite(now.loss):
        words += f" Loss on this text: {theme.fmt(before.loss, 'loss')} → {theme.fmt(now.loss, 'loss')} nats."
    if heads_off.scores(trace, shown, recorded).scored == "anew":
        return f"{words} Roles: computed anew.{' All below: recorded with all heads on.' * below}"
    return f"{words} {roles_of}{', and all below' * below}: recorded with all heads on."


def _shown(run: Run, trace: xr.Dataset, step: int, quiet: bool) -> tuple[PromptPatterns, str, See]:
    """Every head at the snapshot, or the kept patterns, nearest to a step; on what, as Markdown; and at any other."""
    chosen = state.read()
    if not prompts.can_read(run):
        kept = recorded_prompts.prompts(run)
        name = chosen.kept if chosen.kept in kept.names else kept.names[0]
        at = kept.steps[nearest_row(kept.steps, step)]
        see = partial(recorded_prompts.of_prompt, run, name=name)
        return see(at), f"“{_brief(prompts.title(run, name))}”", see
    at = run.steps[nearest_row(run.steps, step)]
    text = chosen.prompt or prompt_tokens.example(run)
    try:
        encoded = prompt_tokens.encode(run, text, cut=True)
    except ValueError:  # a text for another model, which the page does not ask for
        text = prompt_tokens.example(run)
        encoded = prompt_tokens.encode(run, text, cut=True)
    off = switches.in_force(run, at, head_scores.head_exists(trace), quiet)
    cut = f"the first {len(encoded.tokens):,} tokens of " if encoded.n_dropped else ""
    see = partial(prompt_attention.of_text, run, tokens=encoded.tokens, strings=encoded.strings, off=off)
    return see(at), f"{cut}“{_brief(text)}”", see


def _brief(text: str) -> str:
    """A text in a line, as Markdown."""
    said = " ".join(text.split())
    return theme.unmarked(said if len(said) <= SAID else f"{said[: SAID - 1]}…")
