"""manyeyes: see every attention head, at every step of training. Page configuration and navigation, nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

# `streamlit run dashboard/app.py` puts dashboard/ on the path, not the folder that holds both packages
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dashboard import navigation, theme  # noqa: E402

st.set_page_config(page_title="manyeyes", page_icon="👁️", layout="wide", initial_sidebar_state="collapsed")

theme.apply()
st.navigation(navigation.pages(), position="top").run()
