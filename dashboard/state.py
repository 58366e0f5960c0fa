"""What a person has chosen: one value for all pages, that the address says, the controls show, and pages compute from.

1. The session holds it, and nothing else does: `read` gives it, `update` changes it.
2. The address is written after every change, on every page, whole. It is read when a session begins (a link, a reload)
   and when the browser goes Back or Forward; at any other time what a browser brings along may lag behind.
3. A control shows it and hands a person's choice on (`control`). It is given its value when its page comes up
   (`turn_to`) or the value changes; Streamlit's `persist_state` gives it again to a browser that missed it, because a
   click cut that run short. What a page lacks is chosen no more (`among`).

The controls are not bound to the address by `bind="query-params"`, which in Streamlit 1.67 can't do it (tried in
Chromium): a parameter is gone on each page without its widget, and lost by a reload there; what a person chooses
replaces the entry in the browser's history, so Back does not undo it; two values that change at once are two entries;
a value stands as its label, so that `step=1000` is not "1,000" and opens the default; and a page that lacks the chosen
step puts back the run as well. Half of what a link carries has no widget: heads, tokens, cards clicked in pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from typing import Any

import streamlit as st

from dashboard.streamlit_internals import went_back
from dashboard.theme import head_label, parse_head
from tracer.measures.aliases import Head

NUMBERS = ("step", "layer", "head", "token", "other_step", "tour")
SWITCHES = ("frozen", "raw", "log", "since", "mean", "alone")
KNOWN = {
    "mode": ("zero", "mean", "resample"),
    "order": ("index", "measure"),
    "view": ("lines", "heatmap"),
    "match": ("label", "alike"),
    "looks": ("sharpest", "induction", "previous_token", "farthest"),
    "into": ("k", "q", "v"),
    "path": ("all", "late"),
    "guess": ("copying", "everything", "nothing"),
    "section": ("effect", "text", "heads", "when", "set", "patch"),
    "unit": ("nats", "perplexity"),
    "quantity": ("update_ratio", "grad_norm", "grad_norm_clipped", "weight_norm"),
}
LONGEST_PROMPT = 4000
"""Characters; what is longer stays in the session, because servers refuse addresses of more than 8 to 64 kB."""
MOST_OVER = 8
"""Runs that one picture lays over each other."""
LARGEST = 2**31 - 1
"""No step or head is beyond it, and numpy can still compare with it."""


@dataclass(frozen=True)
class Selection:
    """Every choice that a link carries."""

    run: str | None = None
    """Directory of the run, as given (a name under checkpoints/, or a path)."""
    compare: str | None = None
    """A second run, laid beside this one."""
    over: tuple[str, ...] = ()
    """Further runs, laid beside `run` and `compare` where a page shows several."""
    alone: bool = False
    """Whether Phases lays nothing beside the run where none is chosen, in place of the other seeds of its preset."""
    unit: str = "nats"
    """Whether Training draws losses in "nats" or as "perplexity"."""
    mean: bool = False
    """Whether Training draws the mean of several seeds in place of each."""
    runs: str = ""
    """What Runs is to show, in words of `tracer.store.choosing`; empty means all."""
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
    across: str = ""
    """What stands across on the picture of all heads on Find; empty means the first that is known."""
    up: str = ""
    colour: str = ""
    """Empty means the layer."""
    token: int | None = None
    """A token of the prompt that is held in the token view."""
    cell: tuple[int, int] | None = None
    """The query and the key of the prompt that are pinned on a pattern."""
    view: str = "lines"
    """Heads over training as "lines" or as a "heatmap"."""
    other_step: int | None = None
    """A second step that this one is compared with, of the run or of `compare`."""
    other_prompt: str = ""
    """A second prompt that this one is compared with."""
    match: str = ""
    """Which head of the compared run: the one of the same "label", or the most "alike" one; empty means that of the
    same label where both runs began with the same weights."""
    tour: int = 0
    """The step of the tour that is shown, 1 to 6; 0 when nobody takes it."""
    off: tuple[Head, ...] = ()
    """Heads that are off wherever the model runs: on Ablate as `mode` says, elsewhere they write nothing."""
    mode: str = "zero"
    """How they are switched off on Ablate."""
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
    phase: str = ""
    """The curve whose turn Phases is about; empty means the one that says most of an induction circuit."""
    since: bool = False
    """Whether losses by position are shown less what they were when the phase began."""
    path: str = ""
    """The path of the losses over "all" steps, or the "late" ones; empty means where the phase can be seen."""
    section: str = ""
    """What Ablate shows below its answer; empty means the effect, or every head while all are on."""
    metric: str = ""
    """What Ablate shows of sweeps by a user's metric, as the run calls it; empty means the loss."""
    quantity: str = ""
    """What Gradients shows of every tensor; empty means the first that the run holds."""
    tensor: str = ""
    """The tensor followed on Gradients; empty means the queries of the first layer."""
    setting: str = ""
    """Of which runs the first two tutorials' cards are on Papers, in words; empty means the setting of most."""
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
    if name == "cell":
        return ".".join(map(str, value))
    return ("/".join(value) or "/") if name == "over" else str(value)


def from_query(query: dict[str, str]) -> Selection:
    """The inverse of `to_query`; what cannot be read is left at its default, so that a damaged link still opens."""
    found: dict[str, Any] = {}
    for field in fields(Selection):
        text = query.get(field.name)
        if text is None:
            continue
        try:
            if field.name == "off":
                found["off"] = tuple(dict.fromkeys(parse_head(part) for part in text.split()))
            elif field.name == "over":
                found["over"] = _names(text)
            elif field.name == "cards":
                found["cards"] = tuple(dict.fromkeys(text.split()))
            elif field.name == "cell":
                query_pos, key_pos = (min(max(0, int(at)), LARGEST) for at in text.split("."))
                found["cell"] = query_pos, key_pos
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
    if "beside" in query and "compare" not in found:  # as Phases wrote it until it had the comparison of all pages
        first, *rest = _names(query["beside"]) or (None,)
        found |= {"alone": True} if first is None else {"compare": first, "over": tuple(rest)}
    return Selection(**found)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in text.split("/") if name))


def read() -> Selection:
    """The selection in force; also writes it to the address."""
    if "selection" not in st.session_state:
        st.session_state["selection"] = from_query(st.query_params.to_dict())
    elif went_back():
        st.session_state["selection"] = replace(from_query(st.query_params.to_dict()), **_too_long())
        st.session_state["written"] = st.query_params.to_dict()
    _write()
    return st.session_state["selection"]


def _too_long() -> dict[str, Any]:
    """What no entry of the browser's history can say, and so can't take back."""
    chosen = vars(st.session_state["selection"])
    return {name: value for name, value in chosen.items() if isinstance(value, str) and len(value) > LONGEST_PROMPT}


def update(**changes: Any) -> None:
    """Change a part of the selection, from a control's callback or from a page."""
    st.session_state["selection"] = replace(st.session_state.get("selection", Selection()), **changes)
    _write()


def among(name: str, offered: Collection[str]) -> str | None:
    """What is chosen, if the page has it; if not, it is chosen no more: no address says what is not shown."""
    chosen, unchosen = getattr(read(), name), getattr(Selection(), name)
    if chosen in offered:
        return chosen
    if chosen != unchosen:
        update(**{name: unchosen})
    return None


def focus_on(head: Head | str | None) -> None:
    """Take a head, by its place or its label, into focus; None, that of the one clicked again, leaves it there."""
    if head is not None:
        layer, at = parse_head(head) if isinstance(head, str) else head
        update(layer=layer, head=at)


def control(key: str, value: Any, choose: Callable[[Any], None]) -> dict[str, Any]:
    """What makes a widget a control: it shows `value`, on every page anew, and `choose` takes what a person picks."""
    show(key, value)
    return {"key": key, "on_change": lambda: choose(st.session_state[key]), "persist_state": "session"}


def show(key: str, value: Any) -> None:
    """Give a widget its value, unless it has it: writing it again would undo what a person is doing meanwhile."""
    shown = st.session_state.setdefault("shown", set())
    if key not in shown or key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value
        shown.add(key)


def turn_to(page: str) -> None:
    """Begin a run of this page: the controls of another are other widgets, also under the same key."""
    if st.session_state.get("page") != page:
        st.session_state.update(page=page, shown=set())


def open_run(run: str | None) -> None:
    """Turn to another run, None to the newest: what belonged to the old one stays behind, the prompt travels along."""
    update(run=run, step=None, layer=None, head=None, off=(), token=None, cell=None, other_step=None, guess="",
           alone=False, phase="", path="", tensor="", cards=not_verdicts())  # fmt: skip


def not_verdicts() -> tuple[str, ...]:
    """The open cards but those of verdicts, which belong to one run, and are drawn up when asked."""
    return tuple(card for card in st.session_state.get("selection", Selection()).cards if card[:8] != "verdict-")


def _write() -> None:
    """A browser that brings the old address along may still be told of the last one written: both are compared."""
    query = to_query(st.session_state["selection"])
    if st.query_params.to_dict() != query or st.session_state.get("written", query) != query:
        st.query_params.from_dict(query)
    st.session_state["written"] = query
