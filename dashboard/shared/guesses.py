"""What the model would say next, with every head on and with some off; and its loss on the whole text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard.loading import prompt_attention, prompt_tokens
from dashboard.shared.mount import draw
from tracer.measures.aliases import Head
from tracer.pictures import guesses
from tracer.pictures.guesses import TOP, Guesses
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.analysis.prompt_attention import Said


def draw_next(run: Run, shown: PromptPatterns, before: PromptPatterns) -> None:
    """The likeliest tokens after the prompt, in a line; nothing where the model foretells none.

    `before`: the same prompt with every head on.
    """
    now, then = prompt_attention.said(run, shown), prompt_attention.said(run, before)
    if now is not None and then is not None:
        draw_said(run, now, then, shown.off)


def draw_said(run: Run, now: Said, then: Said, off: tuple[Head, ...]) -> None:
    """The line of what the model says `now`, with heads `off`, and said `then`, with every head on."""
    ids = likeliest(now.following, then.following)
    words = prompt_tokens.strings(run, ids)
    said, before = (Guesses(words, one.following[ids], one.loss) for one in (now, then))
    with st.container(key="next_token"):
        draw(guesses.picture(said, before if off else None), key="guesses")


def likeliest(now: np.ndarray, before: np.ndarray) -> list[int]:
    """The tokens to show, the likeliest first; the one that was likeliest before comes in any case, and then first."""
    ids = prompt_tokens.likeliest(now, TOP)
    best = int(np.argmax(before))
    return ids if best in ids else [best, *ids[: TOP - 1]]
