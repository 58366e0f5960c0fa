"""The pages, their names and their addresses, in the order of the menu."""

from __future__ import annotations

import importlib
from functools import partial

import streamlit as st
from streamlit.navigation.page import Page

from tracer.cli.own_pages import asked

TITLES = {
    "runs": "Runs",
    "heads": "Heads",
    "find": "Find",
    "training": "Training",
    "phases": "Phases",
    "gradients": "Gradients",
    "ablate": "Ablate",
    "circuits": "Circuits",
    "specimens": "Papers",
}


def page(name: str) -> Page:
    """A page by its address; runs is where one lands."""
    return _page(name, "landing" if name == "runs" else name)


def pages(shown: str = "landing") -> list[Page]:
    """The menu; Streamlit serves the default page at / only, so /runs is a page too, and the menu shows one of them."""
    twins = [_page("runs", url, shown=url == shown) for url in ("landing", "runs")]
    view = importlib.import_module("dashboard.views.own.page")
    own = [st.Page(view.page_of(name, path), title=view.title(name), url_path=name) for name, path in asked().items()]
    return [*twins, *(page(name) for name in TITLES if name != "runs"), *own]


def _page(name: str, url: str, shown: bool = True) -> Page:
    return st.Page(partial(_draw, name), title=TITLES[name], url_path=url, default=url == "landing",
                   visibility="visible" if shown else "hidden")  # fmt: skip


def _draw(name: str) -> None:
    """A page; its modules are imported when it is first drawn, because a server's first page would wait for them."""
    importlib.import_module(f"dashboard.views.{name}.page").page()
