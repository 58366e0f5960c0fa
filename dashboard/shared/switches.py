"""Heads that are switched off wherever the model runs: which are, in words, and the buttons that switch them."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import prompt_attention
from tracer.measures.aliases import Head
from tracer.pictures.atlas import Pick
from tracer.store import Run

FEW = 6
"""Heads that are named; more are counted."""
OFF = "Off: it writes nothing, and every later pattern is computed anew."


def in_force(run: Run, step: int, there: np.ndarray, quiet: bool = False) -> tuple[Head, ...]:
    """The heads that are off where a page runs this model, in order, of those that it has; none where they can't be.

    The reader is told why, unless it is `quiet`.
    """
    off = sorted(state.read().off)
    kept = tuple(h for h in off if h[0] < there.shape[0] and h[1] < there.shape[1] and there[h])
    gone = [theme.head_label(*h) for h in off if h not in kept]
    if gone and not quiet:
        st.warning(f"This model has no {', '.join(gone)}: left out.", icon=":material/block:")
    if not (kept and (why := prompt_attention.why_on(run, step, kept))):
        return kept
    if not quiet:
        st.warning(f"{named(kept)} cannot be switched off here: every head is on.", icon=":material/block:")
        st.text(why)
    return ()


def named(off: tuple[Head, ...]) -> str:
    """The heads in words: "L0H1 and L1H2", or their number."""
    labels = [theme.head_label(*head) for head in off]
    if len(labels) > FEW:
        return f"{len(labels)} heads"
    return " and ".join([", ".join(labels[:-1]), labels[-1]] if len(labels) > 1 else labels)


def take(pick: Pick) -> None:
    """What was picked in an atlas with switches: the head in focus, which a switch leaves there, and those off."""
    layer, head = pick.head or (None, None)
    state.update(off=pick.off, layer=layer, head=head)  # at once: one entry of the browser's history


def turn(head: Head) -> None:
    """Switch a head off, or on again."""
    off = state.read().off
    state.update(off=tuple(one for one in off if one != head) if head in off else tuple(sorted((*off, head))))


def draw_switch(head: Head, key: str, help: str = OFF) -> None:
    """A button that switches one head; `help`: what off means, unless a page says it."""
    gone = head in state.read().off
    label = f"Switch {theme.head_label(*head)} {'on' if gone else 'off'}"
    icon = ":material/toggle_on:" if gone else ":material/toggle_off:"
    st.button(label, key=key, icon=icon, type="tertiary", on_click=turn, args=(head,), help=help or None)


def draw_all_on(off: tuple[Head, ...]) -> None:
    """A button that switches every head on again; nothing while all are."""
    if off:
        st.button("All heads on", key="all_on", icon=":material/restart_alt:", type="tertiary",
                  on_click=lambda: state.update(off=()))  # fmt: skip
