"""One head over distances: what it would attend to by positions alone, and what it does on repeated tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import navigation, state, theme
from dashboard.components.curves import curves
from dashboard.components.positions import positions
from dashboard.pages.circuits import about
from dashboard.pages.circuits import data as circuits
from dashboard.pages.circuits.data import Head, Key
from tracer.pictures import payload

if TYPE_CHECKING:
    from tracer.config import ModelConfig

LONGEST = 128
"""Positions of the pattern that is drawn."""


def draw_positions(key: Key, model: ModelConfig, head: Head, why_not: str) -> None:
    """The pattern that the positions alone would make."""
    label = theme.head_label(*head)
    about.heading(f"{label} by positions", about.POSITIONS, "positions")
    if why_not:
        st.caption(why_not)
        return
    normed = normable(model) and _choose_norm()
    n = min(model.n_ctx, LONGEST)
    found = circuits.positions(key, head, n, normed)
    st.caption(
        f"On average {_mean(found, 1):.2f} on the position before, {_mean(found, 0):.2f} on its own; a head without "
        f"preference has {_mean(even(n), 1):.2f}."
        + (f" The first {n} of {model.n_ctx} positions." if n < model.n_ctx else "")
    )
    positions(found, key="positions", label=f"{label} by positions", before=_mean(found, 1))


def normable(model: ModelConfig) -> bool:
    """Do positions go through a norm before a head reads them?"""
    return model.norm != "none" and model.norm_position == "pre" and model.positions != "shortformer"


def _choose_norm() -> bool:
    return st.toggle(
        "Through the norm in front of the layer",
        **state.control("positions_normed", not state.read().raw, lambda normed: state.update(raw=not normed)),
    )  # fmt: skip


def even(n: int) -> np.ndarray:
    """Every position looks evenly at itself and all before it [query_pos key_pos]."""
    return np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]


def _mean(found: np.ndarray, back: int) -> float:
    return float(found.diagonal(-back).mean()) if len(found) > back else float("nan")


def _back(distance: int) -> str:
    return "at the token itself" if distance == 0 else f"{distance} token{'s' * (distance > 1)} back"


def _link(label: str) -> None:
    """One click to what the head does in a text."""
    st.page_link(
        navigation.page("find"), label=f"Where {label} looks in text", icon=":material/search:", width="content",
        help="On Find: its sharpest looks in the held-out text, and typical ones",
    )  # fmt: skip


def draw_stripes(key: Key, head: Head) -> None:
    """Every head's mean attention by distance; the one in focus stands out."""
    label = theme.head_label(*head)
    about.heading("Attention by distance", about.STRIPES, "stripes", lambda: _link(label))
    found = circuits.stripes(key)
    there = [(int(a), int(b)) for a, b in np.argwhere(np.isfinite(found.values).all(-1))]
    n_layers = found.values.shape[0]
    own, target = found.values[head], found.period - 1
    most = int(np.nanargmax(own))
    above = own[most] > found.uniform[most]
    looks = f"{label} looks most" if above else f"{label} looks nowhere more than evenly, most"
    st.caption(
        f"On two copies of {found.period} random tokens. {looks} {_back(most)}: {own[most]:.2f} on average, "
        f"{found.uniform[most]:.2f} for a head that attends evenly. {target} back stands what followed the earlier "
        f"copy. Left out is the start token, where heads rest: it gets {found.rest[head]:.0%} of the attention of "
        f"{label}."
    )
    blob = payload.curves(
        np.arange(len(own)), np.array([found.values[one] for one in there]), [theme.head_label(*one) for one in there],
        groups=[layer for layer, _ in there], group_names=[f"layer {i}" for i in range(n_layers)],
    )  # fmt: skip
    curves(
        blob, key="stripes", selected=label, step=target, x_label="tokens back", height=360,
        scale=theme.Scale("Mean attention", digits=3), n_groups=n_layers if n_layers > 8 else None,
        on_change=state.focus_on,
    )  # fmt: skip
