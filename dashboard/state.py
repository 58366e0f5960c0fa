"""What a person has chosen: one value for all pages, kept in the session and mirrored in the URL.

A link reopens the same view elsewhere. Within a session the session's copy decides, because moving to another page
clears the URL; a URL that was edited by hand, or came with a link, decides over it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields, replace
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard.theme import head_label, parse_head
from tracer.analysis.training_curves import NAMES as CURVES

Head = tuple[int, int]
ECHO_SECONDS = 3.0
KEPT_ADDRESSES = 50
NUMBERS = ("step", "layer", "head", "token", "other_step", "tour")
SWITCHES = ("frozen", "raw", "log", "since")
KNOWN = {
    "mode": ("zero", "mean", "resample"),
    "order": ("index", "measure"),
    "view": ("lines", "carpet"),
    "match": ("label", "alike"),
    "looks": ("sharpest", "induction", "previous_token", "farthest"),
    "into": ("k", "q", "v"),
    "phase": tuple(CURVES),
    "path": ("all", "late"),
    "guess": ("copying", "everything", "nothing"),
    "quantity": ("update_ratio", "grad_norm", "weight_norm"),
}
LONGEST_PROMPT = 4000
"""Characters; what is longer stays in the session, because servers refuse addresses of more than 8 to 64 kB."""
LARGEST = 2**31 - 1
"""No step or head is beyond it, and numpy can still compare with it."""


@dataclass(frozen=True)
class Selection:
    """Every choice that a link carries."""

    run: str | None = None
    """Directory of the run, as given (a name under checkpoints/, or a path)."""
    compare: str | None = None
    """A second run, laid beside this one."""
    step: int | None = None
    """A snapshot; None means the last one."""
    prompt: str = ""
    """The person's own text; empty means the run's example prompt."""
    kept: str = ""
    """A prompt kept in the run, where its model cannot be run; empty means the first."""
    layer: int | None = None
    head: int | None = None
    """The head in focus; None means the strongest induction head."""
    measure: str = "induction"
    order: str = "index"
    """How heads are laid out: by index, or the strongest of each layer first ("measure")."""
    find: str = ""
    """What the head finder looks for, such as "induction > 0.5" or "L1H2"."""
    looks: str = "sharpest"
    """What counts as a strong look on Find."""
    token: int | None = None
    """A token of the prompt that is held in the token view."""
    view: str = "lines"
    """Heads over training as "lines" or as a "carpet"."""
    other_step: int | None = None
    """A second step that this one is compared with, of the run or of `compare`."""
    other_prompt: str = ""
    """A second prompt that this one is compared with."""
    match: str = "label"
    """Which head of the compared run: the one of the same label, or the most "alike" one."""
    tour: int = 0
    """The step of the tour that is shown, 1 to 5; 0 when nobody takes it."""
    off: tuple[Head, ...] = ()
    """Heads that are switched off on Ablate."""
    mode: str = "zero"
    """How they are switched off."""
    frozen: bool = False
    """Whether every other pattern is held as it was."""
    guess: str = ""
    """What was predicted on the tour; empty until somebody does."""
    into: str = "k"
    """What later heads read of earlier ones on Circuits: for their keys, queries or values."""
    raw: bool = False
    """Whether positions are read on Circuits as if there were no norm."""
    log: bool = False
    """Whether steps stand on a logarithmic axis."""
    beside: tuple[str, ...] | None = None
    """Runs laid beside this one on Phases; None means the other seeds of its preset."""
    phase: str = ""
    """The curve whose turn Phases is about; empty means the one that says most of an induction circuit."""
    since: bool = False
    """Whether losses by position are shown less what they were when the phase began."""
    path: str = ""
    """The path of the losses over "all" steps, or the "late" ones; empty means where the phase can be seen."""
    quantity: str = ""
    """What Gradients shows of every tensor; empty means the first that the run holds."""
    tensor: str = ""
    """The tensor followed on Gradients; empty means the queries of the first layer."""
    cards: tuple[str, ...] = ()
    """Cards that are open: of specimens by name, of verdicts on Ablate by head and step."""

    @property
    def focus(self) -> Head | None:
        return None if self.layer is None or self.head is None else (self.layer, self.head)


def to_query(selection: Selection) -> dict[str, str]:
    """The parts that differ from the default, as text; a prompt that is too long for an address is left out."""
    query = {}
    for field in fields(Selection):
        value = getattr(selection, field.name)
        if value != field.default and len(text := _text(field.name, value)) <= LONGEST_PROMPT:
            query[field.name] = text
    return query


def _text(name: str, value: Any) -> str:
    """Names of runs hold no slash; a slash alone is none of them."""
    if name == "off":
        return " ".join(head_label(*head) for head in value)
    if name == "cards":
        return " ".join(value)
    return ("/".join(value) or "/") if name == "beside" else str(value)


def from_query(query: dict[str, str]) -> Selection:
    """The inverse of `to_query`; what cannot be read is left at its default, so that a damaged link still opens."""
    found: dict[str, Any] = {}
    for field in fields(Selection):
        text = query.get(field.name)
        if text is None:
            continue
        try:
            if field.name == "off":
                found["off"] = tuple(parse_head(part) for part in text.split())
            elif field.name == "beside":
                found["beside"] = tuple(dict.fromkeys(name for name in text.split("/") if name))
            elif field.name == "cards":
                found["cards"] = tuple(dict.fromkeys(text.split()))
            elif field.name in SWITCHES:
                found[field.name] = text == "True"
            elif field.name in NUMBERS:
                found[field.name] = min(max(0, int(text)), LARGEST)
            else:
                found[field.name] = text
        except ValueError:
            continue
    for name, known in KNOWN.items():
        if found.get(name) not in known:
            found.pop(name, None)
    return Selection(**found)


def read() -> Selection:
    """The selection in force; also writes it to the URL."""
    query = st.query_params.to_dict()
    ours = {field.name for field in fields(Selection)}
    query = {name: text for name, text in query.items() if name in ours}
    if "selection" not in st.session_state or (query and query != st.session_state.get("written") and not _echo(query)):
        st.session_state["selection"] = from_query(query)
    _mirror(st.session_state["selection"])
    return st.session_state["selection"]


def _echo(query: dict[str, str]) -> bool:
    """Is this an address of ours that the browser has not caught up from, rather than a person going back?

    A rerun brings the browser's address along: for a moment after a choice that is still the one before it, and a
    fragment that ticks by itself may bring any. Back and Forward are told by the browser.
    """
    context = get_script_run_ctx()
    if context is not None and context.is_history_navigation:
        return False
    if _a_part_only():
        return True
    recent = time.monotonic() - st.session_state.get("updated_at", -math.inf) < ECHO_SECONDS
    return recent and query in st.session_state.get("addresses", [])


def _a_part_only() -> bool:
    """Is this the run of one fragment, not of the page?"""
    context = get_script_run_ctx()
    return context is not None and bool(context.fragment_ids_this_run)


def update(**changes: Any) -> None:
    """Change a part of the selection, from a widget's callback or from a page."""
    st.session_state["selection"] = replace(st.session_state.get("selection", Selection()), **changes)
    st.session_state["updated_at"] = time.monotonic()
    _mirror(st.session_state["selection"])


def focus_on(head: Head | str | None) -> None:
    """Take a head, by its place or its label, into focus; None, that of the one clicked again, leaves it there."""
    if head is not None:
        layer, at = parse_head(head) if isinstance(head, str) else head
        update(layer=layer, head=at)


def show(key: str, value: Any) -> None:
    """Give a widget its value, unless it has it: writing it again would undo what a person is doing meanwhile.

    What was given by a run that a click cut short is given again: browsers mount a widget late, as the last run has it.
    """
    given = st.session_state.setdefault("given", set())
    if key not in st.session_state or st.session_state[key] != value or (key in given and not _a_part_only()):
        given.add(key)
        st.session_state[key] = value


def arrived() -> None:
    """The page was drawn to its end: what `show` gave is with the browser."""
    st.session_state["given"] = set()


def open_run(run: str) -> None:
    """Turn to another run: what belonged to the old one is left behind, the prompt travels along."""
    update(run=run, step=None, layer=None, head=None, off=(), token=None, other_step=None, guess="", beside=None,
           phase="", path="", tensor="", cards=not_verdicts())  # fmt: skip


def not_verdicts() -> tuple[str, ...]:
    """The open cards but those of verdicts, which belong to one run, and are drawn up when asked."""
    return tuple(card for card in st.session_state.get("selection", Selection()).cards if card[:8] != "verdict-")


def _mirror(selection: Selection) -> None:
    query = to_query(selection)
    if query != st.session_state.get("written"):
        st.session_state["written"] = query
        st.session_state["addresses"] = [*st.session_state.get("addresses", []), query][-KEPT_ADDRESSES:]
    if st.query_params.to_dict() != query:
        st.query_params.from_dict(query)
