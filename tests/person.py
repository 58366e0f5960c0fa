"""A tab without a browser, which speaks the dashboard's own protocol with its real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from google.protobuf.message import Message
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets import Subprotocol
from websockets.sync.client import connect

PATIENCE = 60.0
"""Seconds without a word after which a server hangs."""
Seen = dict[tuple[int, ...], bytes]
"""A page: what stands at each place of it."""


class Person:
    """One tab: an address goes out, a page comes back."""

    def __init__(self, url: str, patience: float = PATIENCE) -> None:
        self._url, self._patience = url, patience

    def __enter__(self) -> Self:
        socket = f"{self._url.replace('http', 'ws', 1)}/_stcore/stream"
        self._open = connect(socket, subprotocols=[Subprotocol("streamlit")], max_size=None)
        self._wire, self._known = self._open.__enter__(), dict[str, ForwardMsg]()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def visit(self, page: str, query: str, *widgets: WidgetState) -> tuple[Seen, list[str]]:
        """What the page shows, and its tracebacks; `widgets`: what a browser says of those on the page."""
        asked = BackMsg()
        asked.rerun_script.query_string, asked.rerun_script.page_name = query, page
        context = asked.rerun_script.context_info
        context.url, context.timezone, context.color_scheme = f"{self._url}/{page}", "Europe/Berlin", "light"
        asked.rerun_script.widget_states.widgets.extend(widgets)
        self._wire.send(asked.SerializeToString())
        seen, raised = dict[tuple[int, ...], bytes](), list[str]()
        for message in self._messages():
            kind = message.WhichOneof("type")
            if kind == "script_finished":
                break
            if kind == "page_not_found":
                raised.append("there is no such page")
            if kind == "delta" and (drawn := message.delta).WhichOneof("type") != "new_transient":  # gone when done
                element = drawn.new_element
                if element.WhichOneof("type") == "exception":
                    raised.append(f"{element.exception.type}: {element.exception.message}")
                if element.WhichOneof("type") == "download_button":  # each session has an address of its own for it
                    element.download_button.deferred_file_id = ""
                seen[tuple(message.metadata.delta_path)] = _bits(drawn)
        return seen, raised

    def _messages(self) -> Iterator[ForwardMsg]:
        """Those that the server knows to be known come by name alone."""
        while True:
            message = ForwardMsg.FromString(bytes(self._wire.recv(timeout=self._patience, decode=False)))
            if message.WhichOneof("type") == "ref_hash":
                known = ForwardMsg()
                known.CopyFrom(self._known[message.ref_hash])
                known.metadata.CopyFrom(message.metadata)
                message = known
            elif message.metadata.cacheable:
                self._known[message.hash] = message
            yield message


def ids(seen: Seen, kind: str) -> dict[str, str]:
    """The id of each widget of a kind (button, selectbox) by its label, of several the last."""
    drawn = (Delta.FromString(bits).new_element for bits in seen.values())
    return {getattr(one, kind).label: getattr(one, kind).id for one in drawn if one.WhichOneof("type") == kind}


def _bits(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)
