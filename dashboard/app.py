"""manyeyes: see every attention head, at every step of training. Page configuration and navigation, nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

# `streamlit run dashboard/app.py` puts dashboard/ on the path, not the folder that holds both packages
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dashboard import theme  # noqa: E402
from dashboard.views import ablate, gradients, heads, runs, training  # noqa: E402

st.set_page_config(page_title="manyeyes", page_icon="👁️", layout="wide", initial_sidebar_state="collapsed")

theme.apply()
st.navigation(
    [
        st.Page(runs.page, title="Runs", url_path="runs", default=True),
        st.Page(heads.page, title="Heads", url_path="heads"),
        st.Page(training.page, title="Training", url_path="training"),
        st.Page(gradients.page, title="Gradients", url_path="gradients"),
        st.Page(ablate.page, title="Ablate", url_path="ablate"),
    ],
    position="top",
).run()
