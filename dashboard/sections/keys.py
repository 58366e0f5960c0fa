"""The help with keys, in the bar on top where it covers nothing."""

from __future__ import annotations

import streamlit as st

from dashboard import state
from dashboard.components.keys import keys

STYLE = """<style>
[data-testid="stLayoutWrapper"]:has(> .st-key-keys_place) { position: absolute; }
.st-key-keys_place { position: fixed; top: .85rem; right: 1rem; width: 74px; z-index: 999991; }
</style>"""


def draw_keys() -> None:
    """Mount it; the page goes to its top when the tour's step changes, where the card is."""
    st.html(STYLE)
    with st.container(key="keys_place", width="content"):
        keys(top=state.read().tour)
