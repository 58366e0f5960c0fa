"""The Ablate page's search for the few heads that are enough for copying."""

from __future__ import annotations

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import state, theme
from dashboard.loading import ablation
from dashboard.loading.ablation import Setup
from dashboard.shared.mount import draw
from dashboard.views.ablate import data
from tracer.pictures import curves
from tracer.store import Run

TARGET = 0.9
MOST = 64
"""Heads of a model that is searched on the page: each choice tries all that are left."""


def draw_circuit(run: Run, setup: Setup) -> None:
    """A button until it is asked for; then the heads in order, what each brings, and a button that applies them."""
    model = setup.model
    n = model.n_layers * model.n_heads
    if ablation.is_large(run) or n > MOST:
        return
    st.header("The smallest set that copies", anchor=False)
    st.caption(
        f"Every head is off; one after the other the head comes back that helps most, until {TARGET:.0%} of what "
        "repeated tokens gain by having been seen is there again. Then heads that are not needed go. Greedy: a small "
        "set, not surely the smallest, and not the only one."
    )
    key = (setup.run, setup.created, setup.step, setup.mode, setup.frozen)
    asked = f"circuit {key}"
    if not st.session_state.get(asked):
        st.button("Search", key="circuit", icon=":material/account_tree:",
                  on_click=lambda: st.session_state.update({asked: True}))  # fmt: skip
        return
    place = st.empty()
    place.progress(0.0, text="No head yet")
    try:
        found = data.circuit(*key, TARGET, _Progress(place, n))
    except ValueError as error:
        place.empty()
        st.text(f"{str(error)[0].upper()}{str(error)[1:]}.")
        return
    place.empty()
    _draw(found, setup, [(layer, head) for layer in range(model.n_layers) for head in range(model.n_heads)])


class _Progress:
    """How many heads the search has settled, of all there are; a search that is done before that is done early."""

    def __init__(self, place: DeltaGenerator, n: int) -> None:
        self._place, self._n, self._rounds = place, n, 0

    def __call__(self, done: int, of: int) -> None:
        share = (self._rounds + done / of) / (self._n + 2)
        self._place.progress(min(1.0, share), text=f"Round {self._rounds + 1}")
        self._rounds += done == of


def _draw(found: data.Circuit, setup: Setup, everything: list[tuple[int, int]]) -> None:
    names = " ".join(theme.head_label(*head) for head in found.heads)
    how = {"zero": "writing nothing", "mean": "at their means", "resample": "resampled"}[setup.mode]
    left, right = st.columns([5, 4], gap="large")
    with left:
        draw(
            curves.picture(
                curves.pack(np.arange(len(found.curve)), np.array([found.curve]), ["kept"]),
                scale=theme.Scale("Share of the gain kept", chance=TARGET, mark="target"), x_label="choice",
                selectable=False, height=230,
            ),
            key="circuit_curve",
        )  # fmt: skip
    with right:
        size = f"{len(found.heads)} of {len(everything)} heads" if len(found.heads) > 1 else "One head"
        said = f"keep {found.share:.0%}" if len(found.heads) > 1 else f"keeps {found.share:.0%}"
        st.markdown(f"**{size} {said}** of the gain, with all others {how}: {names or 'none'}.")
        if not found.reached:
            st.caption(f"No set reaches {TARGET:.0%}: even together these heads do not.")
        repeated, new = ([theme.fmt(loss, "loss") for loss in losses] for losses in (found.repeated, found.new))
        st.caption(
            f"The gain is the loss of new tokens less that of repeated ones. Repeated tokens then cost {repeated[1]} "
            f"nats ({repeated[0]} with every head on), new ones {new[1]} ({new[0]})."
            + (" Above 100 %, new ones got worse by more than repeated ones did." if found.share > 1 else "")
        )
        st.caption("In order: " + ", ".join(_choice(*one) for one in found.choices) + ".")
        others = tuple(head for head in everything if head not in found.heads)
        st.button(
            "Switch all others off", key="apply_circuit", disabled=not others or others == setup.off,
            on_click=lambda: state.update(off=others), help="The switches above then leave only these heads on",
        )  # fmt: skip


def _choice(head: tuple[int, int], taken: bool, share: float) -> str:
    sign, percent = "+" if taken else "−", f"{round(100 * share)} %".replace("-", "−")
    return f"{sign}{theme.head_label(*head)} {percent}"
