"""One head's pattern on a prompt: whole where it is small, else an overview and an exact window into it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import prompt_attention, token_reading
from dashboard.loading.prompt_attention import WHOLE
from dashboard.shared import switches
from dashboard.shared.mount import draw
from tracer.measures.aliases import Head
from tracer.pictures import overview, pattern, payload, versus
from tracer.pictures.overview import Window
from tracer.pictures.pattern import Cell
from tracer.pictures.prompt_patterns import Pool, PromptPatterns

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

SIZE, SMALL = 620, 440
"""Pixels of a window, and of a whole pattern, which is in sight with its tokens on the first screen."""
FIRST_WINDOW = 128
TIMES = {"now": "Now", "before": "Before", "change": "Change"}
"""What a pattern shows while heads are off."""
POOLS: dict[Pool, str] = {"max": "largest", "mean": "average"}


def is_long(shown: PromptPatterns) -> bool:
    """Is some layer's pattern too large to be drawn whole?"""
    return max(max(size) for size in shown.sizes) > WHOLE


def draw_whole(
    shown: PromptPatterns, head: Head, before: PromptPatterns | None = None, pin: Cell | None = None
) -> DeltaGenerator:  # fmt: skip
    """Every cell of one head's pattern; `before`: the same prompt with all heads on, where some are off.

    `pin`: the cell that is pinned until somebody pins one. Returned is the place of what is said of it: on a wide page
    among later tokens, where no cell is.
    """
    what = _draw_title(f"{theme.head_label(*head)} on this prompt", shown, head, before)
    _draw_name(shown, head)
    n_query, n_key = shown.sizes[head[0]]
    with st.container(key="cells"):
        _draw(shown, head, (0, n_query, 0, n_key), before, what, pin, SMALL)
        return st.container(key="why_beside" if shown.causal[head[0]] and what != "change" else "why_near")


def _draw_title(title: str, shown: PromptPatterns, head: Head, before: PromptPatterns | None) -> str:
    """The heading with the head's switch and, with heads off, what is shown of the pattern."""
    with st.container(key="pattern_head", horizontal=True, vertical_alignment="center", gap="small"):
        if before is None:
            st.header(title, anchor=False, width="content")
            return "now"
        # not at the switch itself: what opens above that covers the loss that it changes
        st.header(title, anchor=False, width="content", help=switches.OFF)
        switches.draw_switch(head, key="switch_focus", help="")
        if not shown.off:
            return "now"
        return st.segmented_control(
            "With heads off", list(TIMES), key="off_view", default="now", required=True, width="content",
            format_func=TIMES.__getitem__, label_visibility="collapsed",
        ) or "now"  # fmt: skip


def draw_overview(shown: PromptPatterns, head: Head) -> None:
    """The whole pattern in blocks; dragging over it moves the window."""
    label = theme.head_label(*head)
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"):
        st.header(f"{label} on the whole prompt", anchor=False, width="content")
        chosen = st.segmented_control(
            "A block shows its", list(POOLS), key="pool_box", default="max", required=True,
            format_func=lambda pool: POOLS[pool], label_visibility="collapsed", width="content",
        )  # fmt: skip
    pool: Pool = "mean" if chosen == "mean" else "max"
    _draw_name(shown, head)
    n_query, n_key = shown.sizes[head[0]]
    block = -(-max(n_query, n_key) // prompt_attention.OVERVIEW)
    cells = f"A cell stands for up to {block} x {block} tokens. " if block > 1 else ""
    st.caption(f"{cells}Drag over a part to see it exactly.")
    picture = overview.picture(
        prompt_attention.overview(shown, head, pool, label), window=window_of(shown, head), head=head,
        largest=WHOLE, max_size=SIZE,
    )  # fmt: skip
    draw(picture, key="overview", on_change=lambda window: hold("window", shown, window))


def draw_window(
    shown: PromptPatterns, head: Head, before: PromptPatterns | None = None, pin: Cell | None = None
) -> DeltaGenerator:  # fmt: skip
    """The exact pattern inside the window; `before`, `pin` and what is returned as of `draw_whole`."""
    window = window_of(shown, head)
    what = _draw_title("The window, exactly", shown, head, before)
    queries, keys = (f"{start:,} to {stop - 1:,}" for start, stop in (window[:2], window[2:]))
    st.caption(f"Queries {queries} look at keys {keys}.")
    _draw(shown, head, window, before, what, pin, SIZE)
    return st.container(key="why_near")


def side(name: str, shown: PromptPatterns, head: Head, window: Window) -> versus.Side:
    """A window of a pattern, to be laid beside another."""
    q0, q1, k0, k1 = window
    rows, cols = slice(q0, q1), slice(k0, k1)
    return versus.Side(
        name, shown.window(*head, rows, cols), shown.queries(head[0])[rows], shown.keys(head[0])[cols],
        shown.causal[head[0]], (q0, k0),
    )  # fmt: skip


def _draw(
    shown: PromptPatterns, head: Head, window: Window, before: PromptPatterns | None, what: str, pin: Cell | None,
    size: int,
) -> None:  # fmt: skip
    if before is not None and what == "change":
        sides = (
            side("All heads on", before, head, window),
            side(f"{switches.named(shown.off)} off", shown, head, window),
        )
        picture = versus.picture(versus.pack(*sides), locked=held("versus_cell", shown))
        draw(picture, key="off_change", on_change=lambda cell: hold("versus_cell", shown, cell))
        return
    if before is not None and what == "before":
        shown = before
    layer, (q_start, q_stop, k_start, k_stop) = head[0], window
    blob = pattern.pack(
        shown.window(*head, slice(q_start, q_stop), slice(k_start, k_stop)), shown.queries(layer)[q_start:q_stop],
        key_tokens=shown.keys(layer)[k_start:k_stop], label=theme.head_label(*head),
        causal=shown.causal[layer], query_start=q_start, key_start=k_start,
    )  # fmt: skip
    locked = pinned(shown) or pin
    own = bool(token_reading.head_exists(shown)[head])  # the token view below the pattern shows them as text
    filmed = None if what == "before" else head  # a film is of now
    picture = pattern.picture(
        blob, max_size=size, head=filmed, locked=locked, text=not own, explained=pin is not None
    )  # fmt: skip
    draw(picture, key="pattern", on_change=_pin)
    with st.container(key="exact"), st.container(key="only_here_exact") if locked is None else nullcontext():
        st.text(_exactly(shown, head, locked))


def _exactly(shown: PromptPatterns, head: Head, cell: Cell | None) -> str:
    """The pinned cell's share as it was computed; the picture holds it to four digits."""
    n_query, n_key = shown.sizes[head[0]]
    if cell is None or cell[0] >= n_query or cell[1] >= n_key:
        return "Pin a cell to read its exact value here."
    q, k = cell
    share = float(shown.window(*head, slice(q, q + 1), slice(k, k + 1))[0, 0])
    query, key = payload.visible(shown.queries(head[0])[q]), payload.visible(shown.keys(head[0])[k])
    return f"query {q} “{query}” → key {k} “{key}”: {share:.6f}"


def pinned(shown: PromptPatterns) -> Cell | None:
    """The cell that is pinned; None where a link pins one that this prompt does not have."""
    cell = state.read().cell
    n_query, n_key = (max(sizes) for sizes in zip(*shown.sizes, strict=True))
    return cell if cell is not None and cell[0] < n_query and cell[1] < n_key else None


def strongest(shown: PromptPatterns, head: Head, beyond_first: bool) -> Cell | None:
    """The key that the last token looks at most, `beyond_first` of all but the first; None where nothing is finite."""
    last = shown.sizes[head[0]][0] - 1
    row = shown.window(*head, slice(last, last + 1), slice(0, None))[0]
    start = int(beyond_first and len(row) > 1)
    return (last, start + int(row[start:].argmax())) if np.isfinite(row).all() else None


def _pin(cell: list[int] | None) -> None:
    state.update(cell=None if cell is None else (cell[0], cell[1]))


def held(name: str, shown: PromptPatterns) -> Any:
    """What was picked under this name; it belongs to one prompt of one run."""
    prompt, at = st.session_state.get(name, (None, None))
    return at if prompt == shown.key else None


def hold(name: str, shown: PromptPatterns, at: object) -> None:
    st.session_state[name] = shown.key, at


def _draw_name(shown: PromptPatterns, head: Head) -> None:
    """The module that holds this head, as text: a path is whatever its author called it."""
    if shown.names:
        with st.container(key="module"):
            st.text(f"{theme.head_label(*head)} · {shown.names[head[0]]}")


def window_of(shown: PromptPatterns, head: Head) -> Window:
    """The window in force: the last tokens, until somebody drags."""
    n_query, n_key = shown.sizes[head[0]]
    chosen: Window | None = held("window", shown)
    if chosen and chosen[1] <= n_query and chosen[3] <= n_key:
        return chosen
    return max(0, n_query - FIRST_WINDOW), n_query, max(0, n_key - FIRST_WINDOW), n_key
