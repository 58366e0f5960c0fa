"""A button that takes the whole page along: it says how its charts stand, and saves the file that it is then given."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard.shared.mount import serve

ASKED = "taking"
"""Where the session keeps the key of a pressed button and what it said: the time, and each chart as SVG by its key."""


def taker(label: str, *, key: str, file: Mapping[str, str] | None = None) -> None:
    """Draw the button; `file` is what the last press asked for: its name, its HTML, and the time of the press."""

    def take() -> None:
        st.session_state[ASKED] = key, st.session_state[key]["take"]

    serve("taker", key=key, data={"label": label, **(file or {})}, on_take_change=take)
