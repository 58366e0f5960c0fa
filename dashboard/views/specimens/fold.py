"""A finished specimen folded to what came out: its line opens the card, and nothing of the card is there before.

Which cards are open is part of the selection, so that a link opens them too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import state, theme
from dashboard.views.specimens.claims import claimed
from dashboard.views.specimens.data import ran
from dashboard.views.specimens.papers import badge
from tracer.specimens.paper_verdicts import ClaimAnswer
from tracer.specimens.system_figures import Outcome
from tracer.specimens.systems import Check, System
from tracer.specimens.tutorials import SPECIMENS, TRAINED
from tracer.store import Run

WORST_FIRST = ("fails", "error", "weaker", "too close to tell", "not at this size", "holds", "not tested")


def line(
    specimen: System, run: Run | None, readings: Sequence[ClaimAnswer], found: Mapping[str, Outcome],
    answered: Sequence[Check] = (),
) -> str | None:  # fmt: skip
    """What came out, in Markdown on one line; None where something is still to be done, or cannot be read."""
    if run is None:
        told = None if specimen.name in TRAINED else specimen.published
        return told and f"{badge(*ran(specimen.name).came)} &nbsp;{theme.sentence(told)}"
    if specimen.name not in found:
        return None
    if own := told_for(specimen.name, readings):
        return claimed(own)
    if answered:
        return theme.unmarked(theme.sentence(f"{answered[0].asks}: {answered[0].answer}"))
    part = f"part of {len(readings)} claim{'s' * (len(readings) != 1)}: " if readings else ""
    return theme.sentence(part + _figures(found[specimen.name]))


def _figures(one: Outcome) -> str:
    loss = f"held-out loss {one.loss:.3f}" if math.isfinite(one.loss) else f"{one.status} at step {one.step:,}"
    return f"{loss}, entropy {one.entropy_start:.3f} at the start, {one.entropy_end:.3f} at the end"


def told_for(name: str, readings: Sequence[ClaimAnswer]) -> ClaimAnswer | None:
    """The claim that a specimen is told for: one that fails, if any, else the one over the specimen before it."""
    names = list(SPECIMENS)
    before = names[max(0, names.index(name) - 1)]
    own = [one for one in readings if one.claim.needs[0] == name]
    return min(
        own,
        key=lambda one: (WORST_FIRST.index(one.verdict), before not in one.claim.needs),
        default=None,
    )


def fold(name: str, told: str) -> Any:
    """The expander of a card, open if the selection says so; its content is for `.open` only."""
    state.show(_key(name), name in state.read().cards)
    return st.expander(told, key=_key(name), on_change=_turn, args=(name,))


def _key(name: str) -> str:
    return f"card_{name}"


def _turn(name: str) -> None:
    rest = [one for one in state.read().cards if one != name]
    keep_open([*rest, name] if st.session_state[_key(name)] else rest)


def keep_open(names: Collection[str]) -> None:
    """These cards and no others, in the order of the story."""
    state.update(cards=tuple(name for name in SPECIMENS if name in names))


def draw_all(names: Sequence[str]) -> None:
    """One button for every card that can be folded."""
    if len(names) < 2:
        return
    opened = [name for name in state.read().cards if name in names]
    words, icon, then = ("Fold all", "unfold_less", []) if opened else ("Open all", "unfold_more", names)
    st.button(f"{words} cards", key="all_cards", icon=f":material/{icon}:", type="tertiary", on_click=keep_open,
              args=(list(then),))  # fmt: skip
