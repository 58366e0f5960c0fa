"""What the dashboard uses of Streamlit that Streamlit does not promise: all of it, and here alone.

`tests/test_internals.py` has a contract of each, and the range of Streamlit in pyproject.toml ends below the next minor
version. Where one is gone all the same, a saved page lacks what it asks for, and the dashboard goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from streamlit.runtime.scriptrunner import get_script_run_ctx


def went_back() -> bool:
    """Did the browser go Back or Forward? Streamlit itself asks this way, for the widgets that it binds."""
    return bool(getattr(get_script_run_ctx(), "is_history_navigation", False))


def text_in(widget: str) -> str:
    """What stands in a widget of this script, by its id: its text, or its choices; empty where that is not known."""
    context: Any = get_script_run_ctx()
    try:
        state = context.session_state._state._new_widget_state.get_serialized(widget)
        told = getattr(state, state.WhichOneof("value") or "", "")
    except AttributeError:
        return ""
    return told if isinstance(told, str) else ", ".join(told.data)


@contextmanager
def lasting() -> Iterator[None]:
    """What is drawn here stays in the browser while the page changes, and is drawn over by what comes in its place.

    Streamlit empties a page of what its own script drew, and keeps what the script around all pages did; where it can't
    be told so, a part vanishes with its page, and comes again with the next.
    """
    context: Any = get_script_run_ctx()
    try:
        around = context.run_with_active_hash(context.pages_manager.main_script_hash)
    except AttributeError:
        around = nullcontext()
    with around:
        yield


@contextmanager
def drawn() -> Iterator[list[Any]]:
    """The messages by which this script draws what it draws meanwhile; none where they cannot be heard."""
    context: Any = get_script_run_ctx()
    messages = list[Any]()
    if (send := getattr(context, "enqueue", None)) is None:
        yield messages
        return

    def told(msg: Any) -> None:
        messages.append(msg)
        send(msg)

    context.enqueue = told
    try:
        yield messages
    finally:
        context.enqueue = send
