"""The exercise of a tutorial: what its author asks for, what came out, and the heads that it was asked of."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.shared.mount import draw
from dashboard.theme import unmarked
from dashboard.views.specimens import data
from tracer.pictures import atlas, pattern
from tracer.specimens.systems import Check, System

MARKS = {True: ("✓", "green"), False: ("✕", "red"), None: ("→", "blue")}
SMALL = 200
"""Width of a head's pattern of a few words."""


def draw_checks(specimen: System, answered: Sequence[Check]) -> None:
    """What is asked, each with its answer in numbers; what trained runs say to it comes last."""
    st.markdown("**What its author asks**")
    with st.container(gap="xsmall"):
        for one in [*data.ran(specimen.name).checks, *answered]:
            _draw_check(one)
    if specimen.answers and not answered:
        st.caption("With and without W_O, and whether the heads differ: once both are trained.")


def _draw_check(one: Check) -> None:
    (icon, colour), asks = MARKS[one.holds], one.asks[0].upper() + one.asks[1:]
    st.markdown(f":{colour}-badge[{icon}] &nbsp;{unmarked(asks)}  \n:gray[{unmarked(one.answer)}]")


def draw_heads(specimen: System) -> None:
    """The untrained heads on the exercise's input."""
    found = data.ran(specimen.name)
    word = specimen.name.replace("-", "_")
    if not found.heads:
        st.markdown("**Before training**, on the first line of Python's library")
        draw(atlas.picture(found.atlas, max_cell=88), key=f"{word} exercise")
        return
    st.markdown("**Before training**, on five words")
    for at in range(0, len(found.heads), 2):
        for column, blob, label in zip(st.columns(2), found.heads[at : at + 2], found.labels[at : at + 2], strict=True):
            with column:
                st.caption(label)
                draw(pattern.picture(blob, max_size=SMALL, text=False), key=f"{word} {label.partition(',')[0]}")
