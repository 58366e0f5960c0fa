"""What a page drew, in its order and its columns: read from the messages that Streamlit sends to draw it.

No other module leans on these messages, and nothing is read of what a browser makes of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow

from dashboard.streamlit_internals import text_in
from tracer.pictures.taken import Block

MOST_ROWS = 200
"""Of a table, in a file."""
LEFT_OUT = ("heading", "health_look", "specimen-wall", "all_cards", "runs_over", "switch", "all_on", "only_here")
"""Keys, by how they begin, of what a file says elsewhere or what works on the page only."""
PLACES = ("health_step", "health_head")
"""Of buttons that say when and where."""
FOLDED = ("card_", "verdict_")
"""Of what a file unfolds, though nothing in it can be hovered; its line says what is in it."""
Path = tuple[int, ...]


def css_name(key: str) -> str:
    """The name that Streamlit makes of a key for a class."""
    return re.sub(r"[^\w-]", "-", key.strip(), flags=re.ASCII)


def blocks(messages: Iterable[Any]) -> list[Block]:
    """What can go into a file, each with the column that it stands in, if any."""
    tree = _tree(messages)
    alive = [path for path, delta in tree.items() if _kind(delta) == "bidi_component"]
    found, hidden = [], None
    for path, delta in sorted(tree.items()):
        if hidden is not None and path[: len(hidden)] == hidden:
            continue
        hidden, key = None, _key(delta)
        empty = _kind(delta) == "expandable" and not any(one[: len(path)] == path for one in alive)
        if key.startswith(LEFT_OUT) or _kind(delta) == "popover" or empty and not key.startswith(FOLDED):
            hidden = path
            continue
        column = next((path[:i] for i in range(1, len(path)) if _kind(tree.get(path[:i])) == "column"), None)
        at = column and (column[:-1], column[-1])
        found += [{**block, "at": at} for block in _blocks(delta, key)]
    return found


def _tree(messages: Iterable[Any]) -> dict[Path, Any]:
    tree: dict[Path, Any] = {}
    for message in messages:
        if message.WhichOneof("type") == "delta":
            path = tuple(message.metadata.delta_path)
            if path in tree:  # drawn over
                tree = {one: delta for one, delta in tree.items() if one[: len(path)] != path}
            tree[path] = message.delta
    return tree


def _kind(delta: Any) -> str | None:
    of = None if delta is None else getattr(delta, delta.WhichOneof("type"))
    return of and of.WhichOneof("type")


def _key(delta: Any) -> str:
    of = getattr(delta, delta.WhichOneof("type"))
    if delta.WhichOneof("type") == "new_element":
        of = getattr(of, of.WhichOneof("type"))
    return re.sub(r"^\$\$ID-\w+-", "", getattr(of, "id", ""))


def _blocks(delta: Any, key: str) -> list[dict[str, Any]]:
    kind = _kind(delta)
    if kind == "expandable":
        label = delta.add_block.expandable.label
        return [{"kind": "markdown", "text": label} if key.startswith(FOLDED)
                else {"kind": "heading", "level": 3, "text": label}]  # fmt: skip
    if delta.WhichOneof("type") != "new_element":
        return []
    of = getattr(delta.new_element, kind or "empty")
    match kind:
        case "heading":
            return [{"kind": "heading", "level": int(of.tag[1:]), "text": of.body}]
        case "markdown":
            return [{"kind": "note" if of.element_type == of.CAPTION else "markdown", "text": of.body}]
        case "alert" | "html":
            return [{"kind": "markdown" if kind == "alert" else "markup", "text": of.body}]
        case "text":
            return [{"kind": "text", "text": of.body}]
        case "code":
            return [{"kind": "code", "text": of.code_text}]
        case "metric":
            return [{"kind": "fact", "label": of.label, "text": of.body, "note": of.delta}]
        case "dataframe":
            return [_table(of)]
        case "plotly_chart":
            return [{"kind": "still", "key": css_name(key), "alt": of.alt}]
        case "bidi_component":
            return [{"kind": "part", "key": css_name(key)}]
        case "button":
            return [{"kind": "place" if key.startswith(PLACES) else "button", "text": of.label}]
        case "selectbox" | "button_group" if not of.label_visibility.value and of.label != "Run":
            value = text_in(of.id)
            return [{"kind": "choice", "label": of.label, "value": value}] if value else []
        case "multiselect" if not of.label_visibility.value:
            value = text_in(of.id)
            return [{"kind": "choice", "label": of.label, "value": value}] if value else []
        case "text_area":
            return [{"kind": "prompt", "text": text_in(of.id)}]
    return []


def _table(of: Any) -> dict[str, Any]:
    """Its columns as they are named and printed, and its first rows."""
    frame = pyarrow.ipc.open_stream(of.arrow_data.data).read_pandas()
    about: Mapping[str, Any] = json.loads(of.columns or "{}")
    shown = [name for name in frame.columns if not about.get(str(name), {}).get("hidden")]
    top = [about.get(str(name), {}).get("label") or str(name) for name in shown]
    forms = [(about.get(str(name), {}).get("type_config") or {}).get("format") or "" for name in shown]
    lines = frame[shown].head(MOST_ROWS).itertuples(index=False)
    rows = [[_cell(value, form) for value, form in zip(line, forms, strict=True)] for line in lines]
    return {"kind": "table", "rows": [top, *rows], "more": len(frame) - len(rows)}


def _cell(value: Any, form: str) -> str:
    if value is None or value != value:
        return ""
    return form % value if "%" in form and isinstance(value, (int, float)) else str(value)
