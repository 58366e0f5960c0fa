"""The pages, their names and their addresses, in the order of the menu."""

from __future__ import annotations

import importlib

import streamlit as st
from streamlit.navigation.page import Page

TITLES = {
    "runs": "Runs",
    "heads": "Heads",
    "find": "Find",
    "training": "Training",
    "phases": "Phases",
    "gradients": "Gradients",
    "ablate": "Ablate",
    "circuits": "Circuits",
    "specimens": "Specimens",
}


def page(name: str) -> Page:
    """A page by its address; runs is where one lands."""
    view = importlib.import_module(f"dashboard.views.{name}")
    landing = name == "runs"
    return st.Page(view.page, title=TITLES[name], url_path="landing" if landing else name, default=landing)


def pages() -> list[Page]:
    """The menu, and a page that it does not show: Streamlit serves the default page at / only, so /runs needs one."""
    landing = importlib.import_module("dashboard.views.runs")
    hidden = st.Page(landing.page, title=TITLES["runs"], url_path="runs", visibility="hidden")
    return [*(page(name) for name in TITLES), hidden]
