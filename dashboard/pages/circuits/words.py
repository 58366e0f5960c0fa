"""One head over the vocabulary: what it moves, what it copies, who looks at whom, by weights alone."""

from __future__ import annotations

import streamlit as st

from dashboard import theme
from dashboard.components.ledger import Listing, Row, ledger
from dashboard.loading import prompt_tokens
from dashboard.pages.circuits import about
from dashboard.pages.circuits import data as circuits
from dashboard.pages.circuits.data import Head, Key
from tracer.store import Run


def draw_words(run: Run, key: Key, head: Head, why_not: str) -> None:
    """Asks first where streaming takes long."""
    label = theme.head_label(*head)
    about.heading(f"{label} in words", about.WORDS, "words")
    if why_not:
        st.caption(why_not)
        return
    d_vocab = run.about.d_vocab or 0
    if not is_asked(run):
        st.caption(f"{d_vocab:,} × {d_vocab:,} pairs of tokens take a while to go through, for each head.")
        st.button("Go through them", icon=":material/play_arrow:", key="stream_words",
                  on_click=lambda: st.session_state.update({_wish(run): True}))  # fmt: skip
        return
    found = circuits.words(key, head)
    held = run.why_not("norm_scales") or "norms are held at their mean scale"
    st.caption(
        f"The direct path from the embedding to the logits; {held}. "
        f"{found.copied:.1%} of all tokens raise their own logit most; at chance {1 / d_vocab:.2%}."
    )

    def strings(*ids: int) -> list[str]:
        return prompt_tokens.strings(run, ids)

    lists = [
        Listing("Moves", ["looked at", "raises", "logit"], [Row(strings(a, b), v) for a, b, v in found.moves],
                note="OV: the strongest of all pairs"),
        Listing("Copies", ["token", "its own logit"], [Row(strings(a), v) for a, v in found.copies],
                note="OV: tokens that raise themselves most" if found.copies else "No token raises itself most."),
        Listing("Looks", ["who looks", "at whom", "score"], [Row(strings(a, b), v) for a, b, v in found.looks],
                note="QK: the strongest of all pairs"),
    ]  # fmt: skip
    ledger(lists, key="words")


def is_asked(run: Run) -> bool:
    """May the pairs of tokens be gone through: because they are few, or because the reader said so?"""
    return (run.about.d_vocab or 0) ** 2 <= circuits.AT_ONCE or bool(st.session_state.get(_wish(run)))


def _wish(run: Run) -> str:
    return f"words {run.dir.resolve()}"
