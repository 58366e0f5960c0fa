"""Take it with you: the view as one file that works offline, its link, and the lines of Python that show it again."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import streamlit as st

from dashboard import loading, state
from dashboard.components.saver import saver
from dashboard.loading import prompting, taking
from dashboard.loading.looking import Head, Sight
from tracer import showing
from tracer.store import Run

STYLE = "<style>.st-key-saver_place { position: absolute; width: 0; height: 0; }</style>"


def draw_saver() -> None:
    """What saves every picture of this page, out of the way."""
    st.html(STYLE)
    with st.container(key="saver_place"):
        saver()


def draw_taking(run: Run, sight: Sight, focus: Head, measure: str) -> None:
    """A button that opens the three ways to take this view along."""
    selection = replace(
        state.read(), run=state.read().run or run.name, step=sight.step, layer=focus[0], head=focus[1], measure=measure
    )
    link = f"{st.context.url or ''}?{urlencode(state.to_query(selection))}"
    prompt, code = _words(run, sight, focus, measure)
    with st.popover("Take it with you", icon=":material/ios_share:", width="content"):
        st.markdown("**As a file**")
        st.caption("One HTML file with these pictures, to hover, click and play: it opens anywhere, without a network.")
        st.download_button(
            "Download this view", key="take", icon=":material/download:", on_click="ignore", mime="text/html",
            data=lambda: taking.heads(
                run, loading.trace(run), sight, focus, measure, prompt=prompt, code=code, link=link
            ),
            file_name=f"heads-{run.name}-step-{sight.step}.html",
        )  # fmt: skip
        st.markdown("**As a link**")
        st.code(link, language=None, wrap_lines=True)
        st.markdown("**As Python**")
        st.code(code, language="python", wrap_lines=True)


def _words(run: Run, sight: Sight, focus: Head, measure: str) -> tuple[str, str]:
    """The prompt in words, and the code that shows it again; of a kept prompt only the numbers can be had."""
    asked = sight.key[2]
    if isinstance(asked, str):
        where = f"prompt={asked!r}, step={sight.step}"
        opened = f"tracer.open_run({f'checkpoints/{run.name}'!r})"
        return asked, f"import tracer\n\n{opened}.trace.pattern.sel({where})[{focus[0]}, {focus[1]}]"
    text = state.read().prompt or prompting.example(run)
    ids = asked if isinstance(asked, tuple) and prompting.tokenizer(run) is None else None
    return text, showing.snippet(run, ids or text, sight.step, focus, measure)
