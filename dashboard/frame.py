"""What every page stands in: configuration, navigation, the tour, the ways to take the page along."""

from __future__ import annotations

import streamlit as st

from dashboard import navigation, state, theme
from dashboard.shared import mount
from dashboard.shared.export.page_file import draw_page_taking, draw_taker, forget
from dashboard.shared.tour.steps import draw_tour
from dashboard.streamlit_internals import drawn
from tracer.pictures.picture import Picture


def draw() -> None:
    """The frame of every page, and the page that the address names."""
    st.set_page_config(page_icon="👁️", layout="wide", initial_sidebar_state="collapsed")
    page = st.navigation(navigation.pages(), position="top")
    if page.url_path == "runs":  # the menu marks the page that it shows
        page = st.navigation(navigation.pages(shown="runs"), position="top")
    st.set_page_config(page_title=f"{page.title} · manyeyes")
    state.turn_to(page.url_path)
    forget()
    with st.container(key="top", gap=None):  # one place on the page, whether the tour's card is in it or not
        with st.container(key="frame", height=1, border=False, gap=None):  # unseen, or afloat: nothing moves then
            st.html("<i></i>")  # fetches what later pieces of HTML wait for
            mount.all_parts()
            mount.serve("scheme", key="scheme", data=theme.mode(), on_turned_change=lambda: None)
            mount.serve("rule", key="rule", data=0)
            # what ? and / do anywhere; the page goes to its top when the tour's step changes, where the card is
            mount.draw(Picture("keys", {"top": state.read().tour}), key="keys")
        draw_tour(page.url_path)
    with drawn() as messages:
        page.run()
    draw_page_taking(page.url_path, page.title)
    draw_taker(page.url_path, messages)
