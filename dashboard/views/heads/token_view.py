"""The prompt as its tokens: point at one to see where it looks, or who looks at it, through any head."""

from __future__ import annotations

from contextlib import nullcontext

import streamlit as st

from dashboard import state, theme
from dashboard.loading import token_reading
from dashboard.shared.mount import draw
from tracer.measures.aliases import Head
from tracer.pictures import token_view
from tracer.pictures.payload import visible
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.pictures.token_view import Pick
from tracer.store import Run


def draw_reading(run: Run, shown: PromptPatterns, focus: Head) -> None:
    """The token view of this prompt, below the pattern."""
    if not token_reading.head_exists(shown)[focus]:
        return  # it looks at something else than this prompt: cross attention, or more queries than tokens
    st.header("What each token looks at", anchor=False)
    st.caption(
        "Point at a token to see where it looks. The squares are what each head does with it; click one to focus."
    )
    n, held = len(shown.strings), state.read().token
    token = held if held is not None and held < n else None
    start = _choose_page(shown, token)

    def choose(pick: Pick) -> None:
        chosen, head = pick
        state.update(token=chosen, **({} if head == focus else {"layer": head[0], "head": head[1]}))

    picture = token_view.picture(
        token_reading.token_view(run, shown, start, focus), token=token, head=focus, step=shown.step,
    )  # fmt: skip
    draw(picture, key="reading", on_change=choose)
    _draw_exact(run, shown, focus, token)


def _choose_page(shown: PromptPatterns, token: int | None) -> int:
    """Where the tokens that are shown begin: the last ones, until somebody turns to others or holds one of them."""
    n, page = len(shown.strings), token_reading.plan(shown).n
    if n <= page:
        return 0
    starts = [*range(0, n - page, page), n - page]
    prompt, last_token, start = st.session_state.get("reading_at", (None, None, None))
    if prompt != shown.key or start not in starts:
        start, last_token = starts[-1], None
    if token is not None and token != last_token and not start <= token < start + page:
        start = next(s for s in starts if token < s + page)
    st.session_state["reading_at"] = (shown.key, token, start)

    def turned(start: int) -> None:
        st.session_state["reading_at"] = (shown.key, token, start)

    return st.select_slider(
        f"Tokens shown, of {n:,}", starts, **state.control("reading_page", start, turned),
        format_func=lambda s: f"{s:,} to {s + page - 1:,}",
        help="Shares count what a token pays to all of the prompt; what lies outside these tokens is not drawn.",
    )  # fmt: skip


def _draw_exact(run: Run, shown: PromptPatterns, head: Head, token: int | None) -> None:
    """The held token's strongest link as a float; as text, because a token says whatever somebody typed."""
    if token is None:
        line = "Pin a token to read its exact value here."
    else:
        attention, weighted = token_reading.exact(run, shown, head, token)

        def link(to: int, token: int = token) -> str:
            return " → ".join(f"{i} “{visible(shown.strings[i])}”" for i in (token, to))

        best = int(attention.argmax())
        line = f"{theme.head_label(*head)}, exactly: {link(best)} {attention[best]:.6f}"
        if weighted is not None:
            line += f", value-weighted {weighted[best]:.6f}"
            most = int(weighted.argmax())
            line += "" if most == best else f". Value-weighted, most goes {link(most)} {weighted[most]:.6f}"
        line += "."
    with st.container(key="exactly"), st.container(key="only_here_exactly") if token is None else nullcontext():
        st.text(line)
