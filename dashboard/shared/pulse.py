"""Drawing a part of a page again and again, and nothing else: `st.fragment(run_every=)` without its race.

Streamlit's timer also fires between a click or Back and the page that comes, which is then cleared: it stays empty.
"""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard.shared.mount import serve
from dashboard.turns import turn


def ticking(draw: Callable[[], None], *, key: str, seconds: float = 2.0) -> None:
    """Draw now, and again every so many seconds while the page is in sight and nobody clicks."""

    def again() -> None:
        with turn():
            draw()
            with st.container(key=f"pulse_{key}"):
                serve("pulse", key=f"pulse {key}", data=int(1000 * seconds), on_tick_change=_nothing)

    st.fragment(again)()


def _nothing() -> None:
    """A component only reports what somebody listens to."""
