"""manyeyes: see every attention head, at every step of training. Configuration, navigation, what every page has."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

# `streamlit run dashboard/app.py` puts dashboard/ on the path, not the folder that holds both packages
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dashboard import navigation, theme  # noqa: E402
from dashboard.sections.keys import draw_keys  # noqa: E402
from dashboard.sections.taking import draw_saver  # noqa: E402
from dashboard.sections.tour import draw_tour  # noqa: E402

page = st.navigation(navigation.pages(), position="top")
st.set_page_config(
    page_title=f"{page.title} · manyeyes", page_icon="👁️", layout="wide", initial_sidebar_state="collapsed"
)

theme.apply()
draw_keys()
draw_saver()
draw_tour(page.url_path)
page.run()
