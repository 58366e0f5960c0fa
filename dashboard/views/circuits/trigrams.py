"""A one-layer head as skip-trigrams: A somewhere before B, or at a distance that its positions prefer, then C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import state, theme
from dashboard.loading import prompt_tokens
from dashboard.shared.plots import table
from dashboard.views.circuits import data, headings
from dashboard.views.circuits.data import Trigram
from dashboard.views.circuits.distances import LONGEST, normable
from dashboard.views.circuits.vocabulary import amounts, is_asked
from tracer.config import ModelConfig
from tracer.measures.aliases import Head
from tracer.pictures.payload import visible
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.analysis.by_distance import Distances


def draw_trigrams(run: Run, step: int, head: Head) -> None:
    """Nothing where later layers read what this one wrote, or before the streaming has been asked for."""
    if run.about.n_layers != 1 or not is_asked(run):
        return
    label = theme.head_label(*head)
    headings.heading(f"{label} as skip-trigrams", headings.TRIGRAMS, "trigrams")
    if why_not := run.why_not("trigrams"):
        st.caption(why_not)
        return
    n, spread = run.about.n_ctx or LONGEST, None
    if run.can("positions"):
        normed = bool(run.why_not("recipe")) or normable(run.config.model)
        spread = data.distances(run, step, head, min(n, LONGEST), normed and not state.read().raw)
    places = [1 / max(2, n)]
    if spread is not None and spread.prefers:
        places.append(float(spread.shares[spread.best]))
    found = data.trigrams(run, step, head, tuple(places))
    really = None if spread is None else data.seen(run, step, head, spread.best)
    left_out = headings.NORMS if run.why_not("recipe") else ignored(run.config.model)
    st.caption(f"{_said(label, spread, really)} {left_out}")
    by_chance = f"at chance A gets {places[0]:.3f}, and adds 0"
    lists = [(f"A anywhere before B, in {n} tokens", "… B", found[0], by_chance)]
    if len(places) > 1 and spread is not None:
        d = spread.best
        title = "A right before B" if d == 1 else f"A {d} tokens before B"
        note = f"positions alone give A {places[1]:.2f}"
        lists.insert(0, (title, "then B" if d == 1 else f"B, {d} later", found[1], note))
    for i, (column, one) in enumerate(zip(st.columns(2, gap="large"), lists, strict=False)):
        with column:
            _draw_list(run, *one, key=f"trigrams_{i}")


def ignored(model: ModelConfig) -> str:
    """What skip-trigrams leave out of a model of one layer."""
    left_out = {"none": [], "rotary": ["rotations"]}.get(model.positions, ["what a token and a position make together"])
    if model.norm != "none":
        left_out.append("that norms vary (they are held at their mean scale)")
    if model.mlp_hidden:
        left_out.insert(0, "the MLP, which reads what the head writes")
    if not left_out:
        return "One layer, no MLP, no norms, no positions: the head does nothing else."
    so_far = "" if model.mlp_hidden else "One layer and no MLP: the head has no other way to the logits. "
    return f"{so_far}Left out: {'; '.join(left_out)}."


def _said(label: str, spread: Distances | None, really: float | None) -> str:
    """How its positions spread the attention, and what is seen of that in text."""
    if spread is None:
        return "Positions are not in these readings."
    d = spread.best
    back = (
        f"{d} token{'s' * (d > 1)} back: {spread.shares[d]:.2f}, against {spread.even[d]:.2f} without a preference; "
        f"measured on held-out text: {really:.2f}"
    )
    if spread.prefers:
        return f"By positions alone {label} looks most {back}. On the left its attention is smeared like that."
    return f"By positions alone {label} prefers no distance (most {back})."


def _draw_list(run: Run, title: str, between: str, found: list[Trigram], note: str, *, key: str) -> None:
    st.markdown(f"**{title}**")
    st.caption(note)
    values = [one.value for one in found]
    table(
        {"A": [_tokens(run, [one.source]) for one in found], between: [_tokens(run, one.looks) for one in found],
         "→ C": [_tokens(run, one.raises) for one in found], "logit": values,
         "attention": [one.share for one in found]},
        key=key, alt=f"{title}: {note}",
        config={"logit": amounts(values), "attention": st.column_config.NumberColumn(format="%.2f")},
    )  # fmt: skip


def _tokens(run: Run, ids: list[int]) -> str:
    """Side by side, apart by a wide space, which no token shows."""
    return "\u2003".join(visible(text, 16) for text in prompt_tokens.strings(run, ids))
