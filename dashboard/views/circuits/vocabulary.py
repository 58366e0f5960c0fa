"""One head over the vocabulary: what it moves, what it copies, who looks at whom, by weights alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard import theme
from dashboard.loading import prompt_tokens
from dashboard.shared.asking import asked, is_wished
from dashboard.shared.plots import table
from dashboard.views.circuits import data as circuits
from dashboard.views.circuits import headings
from tracer.measures.aliases import Head
from tracer.pictures.payload import visible
from tracer.store import Run


def draw_words(run: Run, step: int, head: Head, why_not: str) -> None:
    """Asks first where streaming takes long."""
    label = theme.head_label(*head)
    headings.heading(f"{label} in words", headings.WORDS, "words")
    if why_not:
        st.caption(why_not)
        return
    d_vocab = run.about.d_vocab or 0
    why = f"{d_vocab:,} × {d_vocab:,} pairs of tokens take a while to go through, for each head."
    if not asked(_wish(run), "Go through them", key="stream_words", at_once=_is_few(run), why=why):
        return
    found = circuits.words(run, step, head)
    held = run.why_not("norm_scales") or "each norm divides by its mean scale"
    st.caption(
        f"The direct path from the embedding to the logits; {held}. "
        f"{found.copied:.1%} of all tokens raise their own logit most; at chance {1 / d_vocab:.2%}."
    )
    headings.say_smeared(run)
    headings.say_gated(run)

    copied = "OV: tokens that raise themselves most" if found.copies else "No token raises itself most."
    lists = [
        ("Moves", "OV: the strongest pairs of two tokens", ["looked at", "raises", "logit"], found.moves),
        ("Copies", copied, ["token", "its own logit"], found.copies),
        ("Looks", "QK: the strongest of all pairs", ["query token", "attended token", "score"], found.looks),
    ]
    for column, (title, note, columns, rows) in zip(st.columns(3, gap="large"), lists, strict=True):
        with column:
            st.markdown(f"**{title}**")
            st.caption(note)
            if rows:
                *tokens, values = zip(*rows, strict=True)
                cells = [*([visible(text, 24) for text in prompt_tokens.strings(run, ids)] for ids in tokens), values]
                table(dict(zip(columns, cells, strict=True)), key=f"words_{title.lower()}", alt=f"{title}: {note}",
                      config={columns[-1]: amounts(values)})  # fmt: skip


def amounts(values: Sequence[float]) -> Any:
    """A column of bars that begin at zero, or at the least of values below it; what is not finite has none."""
    known = [value for value in values if math.isfinite(value)]
    return st.column_config.ProgressColumn(
        format=f"%.{theme.digits(values)}f",
        min_value=min([0.0, *known]),
        max_value=max([1e-9, *known]),
        width="small",
    )


def is_asked(run: Run) -> bool:
    """May the pairs of tokens be gone through: because they are few, or because the reader said so?"""
    return _is_few(run) or is_wished(_wish(run))


def _is_few(run: Run) -> bool:
    return (run.about.d_vocab or 0) ** 2 <= circuits.AT_ONCE


def _wish(run: Run) -> str:
    return f"words {run.dir.resolve()}"
