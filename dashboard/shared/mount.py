"""Mounting a part: heavy bytes once, light choices ("cue") beside them, the reader's pick back.

A component's data is one message: were the selection part of it, each click would send every pattern again. So the
bytes travel alone, and a second, invisible element carries what changes often; shared/shared.js joins the two in the
browser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.components.v2 import component
from streamlit.errors import StreamlitAPIException

from tracer.pictures.sources import Source, element

DRAWN = "drawn"
"""Where the session keeps what the parts of its page were given, by key: for a file of the page."""


class Part:
    """A registered component: calling it mounts it."""

    def __init__(self, name: str, source: Source | None = None) -> None:
        self.part, self.name, self.source = name, f"manyeyes.{name}", source or element(name)
        self.mount = self.register()

    def register(self) -> Any:
        return component(self.name, html=self.source.html, css=self.source.css or None, js=self.source.js)

    def __call__(self, **arguments: Any) -> Any:
        st.session_state.setdefault(DRAWN, {})[arguments["key"]] = self.part, arguments.get("data")
        try:
            return self.mount(**arguments)
        except StreamlitAPIException as problem:
            if problem.error_id != "bidi-component-not-registered":
                raise
        # Components belong to a runtime; a test makes a new one per app while this module stays imported.
        self.mount = self.register()
        return self.mount(**arguments)


_CUE = Part("cue")


def controlled(
    part: Part,
    data: bytes | None,
    cue: dict[str, Any],
    *,
    key: str,
    current: Any,
    read: Callable[[Any], Any],
    on_change: Callable[[Any], None] | None,
) -> Any:
    """Mount and return the value in force: what the reader just chose (through `read`), else `current`."""
    seen = f"{key}:seen"

    def unseen() -> Any:
        pick = (st.session_state.get(key) or {}).get("pick")
        return None if pick == st.session_state.get(seen) else pick

    def take(pick: Any) -> Any:
        st.session_state[seen] = pick
        return read(pick["value"] if isinstance(pick, dict) else pick)

    def notify() -> None:
        if on_change and (pick := unseen()) is not None:
            on_change(take(pick))

    value = current
    if (pick := unseen()) is not None:
        value = take(pick)
        if on_change:  # only a test gets here: it writes the state itself, so no callback ran
            on_change(value)
            st.rerun()
    last = st.session_state.get(seen)
    with st.container(key=f"me-{key}", gap=None):
        _CUE(key=f"{key}:cue", data={"value": value, "seen": last["time"] if isinstance(last, dict) else 0, **cue})
        part(key=key, data=data if data is not None else {}, on_pick_change=notify)
    return value
