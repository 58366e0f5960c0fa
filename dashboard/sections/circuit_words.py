"""One head over the vocabulary: what it moves, what it copies, who looks at whom, by weights alone."""

from __future__ import annotations

import streamlit as st

from dashboard import theme
from dashboard.components.ledger import Listing, Row, ledger
from dashboard.loading import circuits, prompting
from dashboard.loading.circuits import Head, Key
from dashboard.sections import circuit_about as about
from tracer.store import Run


def draw_words(run: Run, key: Key, head: Head, why_not: str) -> None:
    """Asks first where streaming takes long."""
    label = theme.head_label(*head)
    about.heading(f"{label} in words", about.WORDS, "words")
    if why_not:
        st.caption(why_not)
        return
    d_vocab = run.about.d_vocab or 0
    asked = f"words {run.dir}"
    if d_vocab**2 > circuits.AT_ONCE and not st.session_state.get(asked):
        st.caption(f"{d_vocab:,} × {d_vocab:,} pairs of tokens take a while to go through, for each head.")
        st.button("Go through them", icon=":material/play_arrow:", key="stream_words",
                  on_click=lambda: st.session_state.update({asked: True}))  # fmt: skip
        return
    found = circuits.words(key, head)
    st.caption(
        f"The direct path from the embedding to the logits; {about.NORMS[0].lower()}{about.NORMS[1:]} "
        f"{found.copied:.1%} of all tokens raise their own logit most; at chance {1 / d_vocab:.2%}."
    )

    def strings(*ids: int) -> list[str]:
        return prompting.strings(run, ids)

    lists = [
        Listing("Moves", ["looked at", "raises", "logit"], [Row(strings(a, b), v) for a, b, v in found.moves],
                note="OV: the strongest of all pairs"),
        Listing("Copies", ["token", "its own logit"], [Row(strings(a), v) for a, v in found.copies],
                note="OV: tokens that raise themselves most" if found.copies else "No token raises itself most."),
        Listing("Looks", ["who looks", "at whom", "score"], [Row(strings(a, b), v) for a, b, v in found.looks],
                note="QK: the strongest of all pairs"),
    ]  # fmt: skip
    if len(run.about.layers or range(run.config.model.n_layers)) == 1:
        rows = [Row(strings(*three), v[2]) for three, v in zip(found.trigrams, found.looks, strict=True)]
        lists.append(Listing("Skip-trigrams", ["A", "… B", "→ C", "score"], rows, note="B looks at A, and A raises C"))
    ledger(lists, key="words")
