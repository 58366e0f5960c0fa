"""What the model would say next, with every head on and with some off; and its loss on the whole text."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import theme
from dashboard.loading import prompt_attention, prompt_tokens
from tracer.measures.aliases import Head
from tracer.pictures.payload import visible
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.analysis.prompt_attention import Said

TOP = 5
LONGEST = 24
"""Characters of a token."""
STYLE = """<style>
.next { display: flex; gap: 1.2rem; align-items: center; font-size: .875rem; }
.next > * { flex: none; }
.next b { font-weight: 600; }
.next ol { display: flex; flex: 1 1 0; flex-wrap: wrap; gap: .2rem 1.2rem; height: 1.6rem; overflow: hidden;
  list-style: none; margin: 0; padding: 0; } /* one line: what has no room in it does not show */
.next li { display: inline-flex; align-items: center; gap: .4rem; height: 1.6rem; margin: 0; padding: 0;
  font-size: .875rem; font-variant-numeric: tabular-nums; }
.next code { font: 500 .85rem/1.5 "JetBrains Mono", monospace; white-space: pre; padding: 0 .35rem; border-radius: 4px;
  background: rgb(127 127 127 / .14); color: inherit; }
.next i { display: block; width: 2.4rem; }
.next i u { display: block; height: 6px; border-radius: 2px; background: currentColor; min-width: 1px; }
.next i u + u { margin-top: 2px; height: 5px; background: none; box-shadow: inset 0 0 0 1px currentColor;
  opacity: .6; }
.next small, .next span { opacity: .74; font-size: .8rem; font-variant-numeric: tabular-nums; }
@media (max-width: 640px) {
  .next { flex-wrap: wrap; gap: .2rem 1.2rem; }
  .next ol { flex: 1 0 100%; order: 1; height: 3.4rem; }
}
</style>"""


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
    words = [visible(text, LONGEST) for text in prompt_tokens.strings(run, ids)]
    said = line(words, now.following[ids], then.following[ids] if off else None)
    loss = _loss(now, then if off else None)
    with st.container(key="next_token"):
        st.html(f'{STYLE}<div class="next"><b>Next token</b>{said}<span>{loss}</span></div>')


def likeliest(now: np.ndarray, before: np.ndarray) -> list[int]:
    """The tokens to show, the likeliest first; the one that was likeliest before comes in any case, and then first."""
    ids = [int(i) for i in np.argsort(-now, kind="stable")[:TOP]]
    best = int(np.argmax(before))
    return ids if best in ids else [best, *ids[: TOP - 1]]


def line(words: list[str], now: np.ndarray, before: np.ndarray | None) -> str:
    """A list of tokens, each with a bar and its probability; with `before` an outlined bar and "0.73 → 0.01"."""
    most = max(float(np.nanmax(now, initial=0.0)), 0.0 if before is None else float(np.nanmax(before, initial=0.0)))

    def bar(share: float) -> str:
        width = 100 * share / most if most > 0 and math.isfinite(share) else 0
        return f'<u style="width:{width:.1f}%"></u>'

    def one(i: int) -> str:
        bars, said = bar(now[i]), _share(now[i])
        if before is not None:
            bars, said = bars + bar(before[i]), f"<small>{_share(before[i])} → </small>{said}"
        return f"<li><code>{escape(words[i])}</code><i>{bars}</i>{said}</li>"

    return f"<ol>{''.join(map(one, range(len(words))))}</ol>"


def _share(value: float) -> str:
    """To two digits: there are five of them in a line."""
    return theme.fmt(value) if not math.isfinite(value) else f"{value:.2f}" if value >= 0.005 else "<.01"


def _loss(now: Said, before: Said | None) -> str:
    was = "" if before is None else f"{theme.fmt(before.loss, 'loss')} → "
    return f"Loss on this text: {was}{theme.fmt(now.loss, 'loss')} nats"
