"""The pages, their names and their addresses, in the order of the menu."""

from __future__ import annotations

import importlib

import streamlit as st
from streamlit.navigation.page import Page

TITLES = {"runs": "Runs", "heads": "Heads", "training": "Training", "gradients": "Gradients", "ablate": "Ablate"}


def page(name: str) -> Page:
    """A page by its address; runs is where one lands."""
    view = importlib.import_module(f"dashboard.views.{name}")
    return st.Page(view.page, title=TITLES[name], url_path=name, default=name == "runs")


def pages() -> list[Page]:
    return [page(name) for name in TITLES]
