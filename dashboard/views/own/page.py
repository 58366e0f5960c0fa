"""A page of a person's own, from a folder that whoever starts the server names (`manyeyes --pages`).

Its file holds `def page(run, selection)`: the `tracer.Run` that is chosen, and every choice that a link carries
(`dashboard.state.Selection`). It stands in the menu under its file's name, and is read again when it changes.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import streamlit as st

from dashboard import state
from dashboard.shared import choosers
from dashboard.stage import timeline

_READ: dict[Path, tuple[int, ModuleType]] = {}
"""Modules by their file, and when that had changed last."""


def title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def page_of(name: str, path: Path) -> partial[None]:
    """What Streamlit calls to draw this page."""
    return partial(_draw, name, path)


def _draw(name: str, path: Path) -> None:
    choosers.heading(title(name), f"A page of your own, {path.name}.")
    run = choosers.choose_run()
    timeline.choose_record(run)
    try:
        module = _module(name, path)
        if not callable(drawing := getattr(module, "page", None)):
            raise ValueError(f"{path.name} has no function page(run, selection)")
        drawing(run, state.read())
    except Exception as error:  # of the person's own; what stops or reruns a page of Streamlit's is none
        st.error(f"{path.name} could not be drawn.")
        st.exception(error)


def _module(name: str, path: Path) -> ModuleType:
    changed = path.stat().st_mtime_ns
    if (known := _READ.get(path)) is not None and known[0] == changed:
        return known[1]
    spec = importlib.util.spec_from_file_location(f"own_page_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if (folder := str(path.parent)) not in sys.path:  # for what lies beside it
        sys.path.append(folder)
    sys.modules[spec.name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    _READ[path] = changed, module
    return module
