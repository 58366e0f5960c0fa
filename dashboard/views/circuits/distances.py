"""One head over distances: what it would attend to by positions alone, and what it does on repeated tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import navigation, state, theme
from dashboard.shared import switches
from dashboard.shared.mount import draw
from dashboard.shared.plots import plot
from dashboard.views.circuits import data as circuits
from dashboard.views.circuits import figures, headings
from tracer.measures.aliases import Head
from tracer.pictures import curves

if TYPE_CHECKING:
    from tracer.config import ModelConfig
    from tracer.store import Run

LONGEST = 128
"""Positions of the pattern that is drawn."""


def draw_positions(run: Run, step: int, head: Head) -> None:
    """The pattern that the positions alone would make."""
    from tracer.analysis.by_distance import distances

    label = theme.head_label(*head)
    headings.heading(f"{label} by positions", headings.POSITIONS, "positions")
    if why_not := run.why_not("positions"):
        st.caption(why_not)
        return
    normed = (bool(run.why_not("recipe")) or normable(run.config.model)) and _choose_norm()
    n_ctx = run.about.n_ctx or LONGEST
    n = min(n_ctx, LONGEST)
    found = circuits.positions(run, step, head, n, normed)
    if not np.isfinite(found).all():
        st.caption(_not_finite(label, step))
        return
    means = distances(found, fewest=1)
    own, before, *_ = means.shares
    st.caption(
        f"On average {before:.2f} on the position before, {own:.2f} on its own; a head without preference has "
        f"{means.even[1]:.2f}." + (f" The first {n} of {n_ctx} positions." if n < n_ctx else "")
    )
    plot(figures.positions(found), key="positions", alt=f"{label} by positions",
         numbers=lambda: {"query \\ key": list(range(n)), **{str(i): row.tolist() for i, row in enumerate(found.T)}},
    )  # fmt: skip


def normable(model: ModelConfig) -> bool:
    """Do positions go through a norm before a head reads them?"""
    return model.norm != "none" and model.norm_position == "pre" and model.positions != "shortformer"


def _choose_norm() -> bool:
    return st.toggle(
        "Through the norm in front of the layer",
        **state.control("positions_normed", not state.read().raw, lambda normed: state.update(raw=not normed)),
    )  # fmt: skip


def _back(distance: int) -> str:
    return "at the token itself" if distance == 0 else f"{distance} token{'s' * (distance > 1)} back"


def _not_finite(label: str, step: int) -> str:
    return f"At step {step:,} the attention of {label} is not finite."


def _link(label: str) -> None:
    """One click to what the head does in a text."""
    st.page_link(
        navigation.page("find"), label=f"Where {label} looks in text", icon=":material/search:", width="content",
        help="On Find: its sharpest looks in the held-out text, and typical ones",
    )  # fmt: skip


def draw_stripes(run: Run, step: int, head: Head, off: tuple[Head, ...] = ()) -> None:
    """Every head's mean attention by distance, with some `off`; the one in focus stands out."""
    label = theme.head_label(*head)
    headings.heading("Attention by distance", headings.STRIPES, "stripes", lambda: _link(label))
    try:
        (found, period), (before, _) = circuits.stripes(run, step, off), circuits.stripes(run, step)
    except ValueError as error:
        st.caption(f"Its context or its vocabulary is too short for distances: {error}.")
        return
    there = [(int(a), int(b)) for a, b in np.argwhere(np.isfinite(found.values).all(-1))]
    n_layers = found.values.shape[0]
    own, target = found.values[head], period - 1
    if not np.isfinite(own).all():
        st.caption(_not_finite(label, step))
        return
    most = int(own.argmax())
    above = own[most] > found.uniform[most]
    looks = f"{label} looks most" if above else f"{label} prefers no distance; it looks most"
    without = f", without {switches.named(off)}" if off else ""
    copied = f": {before.values[head][target]:.2f} → {own[target]:.2f}" if off else ""
    st.caption(
        f"On two copies of {period} random tokens{without}. {looks} {_back(most)}: {own[most]:.2f} on average, "
        f"{found.uniform[most]:.2f} for a head that attends evenly. {target} back stands what followed the earlier "
        f"copy{copied}. Left out is the start token, where heads rest: it gets {found.rest[head]:.0%} of the "
        f"attention of {label}."
    )
    blob = curves.pack(
        np.arange(len(own)), np.array([found.values[one] for one in there]), [theme.head_label(*one) for one in there],
        groups=[layer for layer, _ in there], group_names=[f"layer {i}" for i in range(n_layers)], n_layers=n_layers,
    )  # fmt: skip
    picture = curves.picture(
        blob, selected=label, step=target, x_label="tokens back", height=360,
        scale=theme.Scale("Mean attention", digits=3),
    )  # fmt: skip
    draw(picture, key="stripes", on_change=state.focus_on)
