"""What the model would say next, with all heads on and with some off; and its loss on the whole text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard.loading import prompt_attention
from dashboard.shared.mount import draw
from tracer.analysis import guessing
from tracer.measures.aliases import Head
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.analysis.prompt_attention import Said


def draw_next(run: Run, shown: PromptPatterns, before: PromptPatterns, *, quiet: bool) -> None:
    """The likeliest tokens after the prompt, in a line; nothing where the model foretells none.

    `before`: the same prompt with all heads on; `quiet`: its loss is said elsewhere.
    """
    now, then = prompt_attention.said(run, shown), prompt_attention.said(run, before)
    if now is not None and then is not None:
        draw_said(run, now, then, shown.off, quiet=quiet)


def draw_said(run: Run, now: Said, then: Said, off: tuple[Head, ...], *, quiet: bool) -> None:
    """The line of what the model says `now`, with heads `off`, and said `then`, with all heads on."""
    with st.container(key="next_token"):
        draw(guessing.line(run, now, then if off else None, quiet=quiet), key="guesses")
