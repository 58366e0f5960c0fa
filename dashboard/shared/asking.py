"""What takes long waits until the reader asks for it, once a session."""

from __future__ import annotations

from typing import Literal

import streamlit as st


def asked(
    wish: str, label: str, *, key: str, at_once: bool = False, title: str = "", why: str = "", help: str | None = None,
    icon: str = ":material/play_arrow:", type: Literal["primary", "secondary"] = "secondary",
) -> bool:  # fmt: skip
    """May it be done: at once, or because the reader said so? Until then a button stands here, and `why` it asks."""
    if at_once:
        return True
    place = st.empty()  # so that all of it is gone when the work begins, and does not fade until the page is through
    if is_wished(wish):
        return True
    with place.container():
        if title:
            st.header(title, anchor=False)
        if why:
            st.caption(why)
        st.button(label, key=key, help=help, icon=icon, type=type,
                  on_click=lambda: st.session_state.update({wish: True}))  # fmt: skip
    return False


def is_wished(wish: str) -> bool:
    return bool(st.session_state.get(wish))
