"""Mounting a picture: heavy bytes once, light choices ("cue") beside them, the reader's pick back.

A component's data is one message: were the selection part of it, each click would send every pattern again. So the
bytes travel alone, and a second, invisible element carries what changes often; common/part.js joins the two in the
browser. The scripts and styles of all parts go to a page once: Streamlit sends an element's script along whenever its
data change, so an element of a part only says which part it is.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.components.v2 import component
from streamlit.errors import StreamlitAPIException

from tracer.pictures import assets
from tracer.pictures.payload import header
from tracer.pictures.picture import Picture

DRAWN = "drawn"
"""Where the session keeps what the parts of its page were given, by key: for a file of the page."""
_MOUNTS: dict[str, Any] = {}


def all_parts() -> None:
    """Mount it once on a page, where it stays: before the pages' own elements."""
    serve("all_parts", key="all_parts", data=_packed())


@functools.cache
def _packed() -> bytes:
    return zlib.compress(assets.all_parts().encode(), 9)


def serve(part: str, *, key: str, data: Any, height: int = 0, **listeners: Callable[[], None]) -> None:
    """Mount a part by its name; `height` is kept free until it is drawn (theme.py)."""
    st.session_state.setdefault(DRAWN, {})[key] = part, data
    if part not in _MOUNTS:
        _register(part)
    try:
        _MOUNTS[part](key=key, data=data, height=height or "content", **listeners)
    except StreamlitAPIException as problem:
        if problem.error_id != "bidi-component-not-registered":
            raise
        # Components belong to a runtime; a test makes a new one per app while this module stays imported.
        _register(part)
        _MOUNTS[part](key=key, data=data, height=height or "content", **listeners)


def _register(part: str) -> None:
    source = assets.opener() if part == "all_parts" else assets.element(part)
    _MOUNTS[part] = component(f"manyeyes.{part}", html=source.html, css=source.css or None, js=source.js)


def draw(picture: Picture, *, key: str, on_change: Callable[[Any], None] | None = None) -> Any:
    """Mount a picture and return the choice in force: what the reader just picked, else its own."""
    seen = f"{key}:seen"

    def unseen() -> Any:
        pick = (st.session_state.get(key) or {}).get("pick")
        return None if pick == st.session_state.get(seen) else pick

    def take(pick: Any) -> Any:
        st.session_state[seen] = pick
        return picture.read(pick["value"] if isinstance(pick, dict) else pick)

    def notify() -> None:
        if on_change and (pick := unseen()) is not None:
            on_change(take(pick))

    value = picture.value
    if (pick := unseen()) is not None:
        value = take(pick)
        if on_change:  # only a test gets here: it writes the state itself, so no callback ran
            on_change(value)
            st.rerun()
    last = st.session_state.get(seen)
    cue = {"value": value, "seen": last["time"] if isinstance(last, dict) else 0, **picture.cue}
    if picture.blob is not None:
        cue["version"] = header(picture.blob)["version"]  # a cue of bytes that have not come yet waits for them
    with st.container(key=f"me-{key}", gap=None):
        serve("cue", key=f"{key}:cue", data=cue)
        data = picture.blob if picture.blob is not None else {}
        serve(picture.part, key=key, data=data, height=picture.height, on_pick_change=notify)
    return value
