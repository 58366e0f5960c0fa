"""The answer of a page: one sentence under the stage, which its pictures then show."""

from __future__ import annotations

import streamlit as st


def draw_answer(sentence: str, help: str | None = None) -> None:
    """`sentence`: Markdown, under 20 words, with each number's comparison; `help` says what it is made from."""
    with st.container(key="answer"):
        st.markdown(sentence, help=help)
