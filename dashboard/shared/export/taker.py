"""A button that takes the whole page along: it says what stands there, and saves the file that it is then given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard.shared.mount import serve

Block = Mapping[str, Any]
"""What stands at one place of the page, as taker.js tells it and tracer.pictures.taken writes it."""


def taker(label: str, *, key: str, make: Callable[[Sequence[Block]], tuple[str, str]]) -> None:
    """Draw the button. A press gives `make` what stands on the page; its file name and its HTML go to the browser."""
    ready = f"{key}:ready"

    def take() -> None:
        asked = st.session_state[key]["take"]
        name, html = make(asked["blocks"])
        st.session_state[ready] = {"time": asked["time"], "name": name, "html": html}

    serve("taker", key=key, data={"label": label, **st.session_state.pop(ready, {})}, on_take_change=take)
