"""Whose output every head reads, by weights alone, and whether heads copy what they read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import ablation, comparison, head_scores
from dashboard.shared.answer import draw_answer
from dashboard.shared.answer_beside import draw_beside
from dashboard.shared.mount import draw
from dashboard.shared.plots import plot
from dashboard.views.circuits import data as circuits
from dashboard.views.circuits import figures, head_roles, headings
from tracer.measures.aliases import Head
from tracer.pictures import bipartite, headmap
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr
    from streamlit.delta_generator import DeltaGenerator

KINDS: dict[circuits.Kind, str] = {"k": "Keys", "q": "Queries", "v": "Values"}
BESIDE = 16
"""Layers whose columns have room in a part of the width."""
MOMENT = 0.5
"""Seconds after which a bar says how far comparing is."""
MOST = 60
"""Edges of other heads that are drawn, so that something is seen."""


def draw_layers(
    run: Run, step: int, trace: xr.Dataset, head: Head, off: tuple[Head, ...], answered: DeltaGenerator
) -> None:  # fmt: skip
    """Composition and copying beside each other; one below the other where the first says nothing or is wide.

    Heads that are `off` are marked: what their weights are is the same. `answered`: the place of the page's answer.
    """
    alone = bool(run.why_not("composition"))
    if alone or trace.sizes["layer"] > BESIDE:
        draw_composition(run, step, trace, head, off, answered)
        draw_copying(run, step, head, off, answered if alone else None, wide=True)
        return
    left, right = st.columns([3, 2], gap="large")
    with left:
        draw_composition(run, step, trace, head, off, answered)
    with right:
        draw_copying(run, step, head, off)


def draw_composition(
    run: Run, step: int, trace: xr.Dataset, head: Head, off: tuple[Head, ...], answered: DeltaGenerator
) -> None:  # fmt: skip
    """Edges from heads to later heads; of a large model those of the kind that is shown, each takes its time."""
    why_not = run.why_not("composition")
    headings.heading(
        "Composition: who reads whom", headings.COMPOSITION, "composition", None if why_not else _choose_kind
    )
    if why_not:
        st.caption(why_not)
        return
    then = "Weights are the same with heads off." if off else "Click a head to take it into focus."
    st.caption(f"A line to a later head: it reads what the earlier one wrote. {then}")
    into = state.read().into
    if into != "v":
        headings.say_smeared(run)
    headings.say_gated(run)
    found = _compared(run, step, tuple(kind for kind in KINDS if kind == into or not ablation.is_large(run)))
    with answered:
        draw_answer(answer(found, into, head))
        draw_beside(run, step, lambda other, at: _answer_of(run, other, at, into, head))
    picture = bipartite.picture(
        found.blob, into=into, roles=head_roles.words(trace, step), selected=head, most=MOST, off=off
    )
    draw(picture, key="composition", on_change=state.focus_on)
    faint = f"Faint (below {found.edge:.3f}): no more than random heads."
    st.caption(f"Thicker: reads more of it. {faint}{_left_out(found, into)}")


def _choose_kind() -> None:
    """What of an earlier head's output a head reads it for."""
    with st.container(horizontal=True, width="content", vertical_alignment="center", gap="small"):
        st.caption("Read as", width="content")
        st.segmented_control(
            "Read as", list(KINDS), required=True, format_func=KINDS.__getitem__, label_visibility="collapsed",
            width="content", **state.control("into_box", state.read().into, lambda kind: state.update(into=kind)),
        )  # fmt: skip


def _compared(run: Run, step: int, kinds: tuple[circuits.Kind, ...]) -> circuits.Composition:
    """With a bar, where it takes more than a moment."""
    place, begun = st.empty(), time.monotonic()

    def told(done: int, of: int) -> None:
        if time.monotonic() - begun > MOMENT:
            place.progress(done / of, text=f"Comparing heads: {done:,} of {of:,} pairs")

    found = circuits.composition(run, step, kinds, told)
    place.empty()
    return found


def _answer_of(run: Run, other: Run, step: int, into: str, head: Head) -> str:
    """The same question at what is compared with, of another head where labels mean nothing; ValueError says why it has
    no answer."""
    if why := other.why_not("composition") or circuits.why_unknown(other, step):
        raise ValueError(f"{other.name}: {why}")
    if ablation.is_large(other):
        raise ValueError(f"{other.name} is large: open it on this page to read its weights.")
    if not comparison.began_alike(run, other):
        head = head_scores.default_head(loading.trace(other), step)
    found = _compared(other, step, tuple(KINDS))
    return answer(found, into, head)


def answer(found: circuits.Composition, into: str, head: Head) -> str:
    """The strongest edge of one head beside what random heads read, or that none stands out of so many pairs."""
    label, beside = theme.head_label(*head), f"random {found.mean:.3f}, sd {found.sd:.4f}"
    edges = [(head, *best) if reads else (best[0], head, best[1]) for reads, best in (
        (True, found.sharpest(into, head)), (False, found.widest(into, head))) if best is not None]  # fmt: skip
    if (best := max(edges, key=lambda edge: edge[2], default=None)) is not None and best[2] > found.edge:
        reader, read, score = best
        names = f"{theme.head_label(*reader)} reads {theme.head_label(*read)}"
        return f"{names} more than random heads would: {into.upper()}-composition {score:.3f} ({beside})."
    if (of_all := found.strongest(into)) is None or of_all[2] <= found.edge:
        return f"No head reads an earlier one more than random heads would, of {found.pairs:,} pairs."
    reader, read, score = of_all
    others = f"{theme.head_label(*reader)} reads {theme.head_label(*read)} most, {score:.3f}"
    return f"{label} neither reads nor is read more than random heads would; {others} ({beside})."


def _left_out(found: circuits.Composition, into: str) -> str:
    """What a crowded picture does not show."""
    many = int(np.isfinite(found.scores[into]).sum()) > bipartite.ALL
    sure = int((found.scores[into] > found.edge).sum())
    if sure <= MOST:
        return ""
    own = f"at least its {bipartite.OWN} strongest on either side" if many else "its own edges"
    return f" Drawn are {own} and the {MOST} strongest of {sure:,} others."


def draw_copying(
    run: Run,
    step: int,
    head: Head,
    off: tuple[Head, ...],
    answered: DeltaGenerator | None = None,
    *,
    wide: bool = False,
) -> None:
    """The spectrum of the head in focus, and the score of all; `wide`: beside each other.

    `answered`: the place of the page's answer, where composition has none.
    """
    headings.heading("Who copies", headings.COPYING, "copying")
    if why_not := run.why_not("vocabulary"):
        st.caption(why_not)
        return
    st.caption("1: makes the model say what it looks at; 0: as random heads; −1: less likely.")
    headings.say_gated(run)
    found = circuits.copying(run, step)
    if answered is not None and (best := head_scores.top_head(found.scores)) is not None:
        score, mean, sd = (theme.fmt(float(one), "share") for one in (found.scores[best], found.mean, found.sd))
        with answered:
            draw_answer(f"{theme.head_label(*best)} copies most: copying score {score} (random {mean}, sd {sd}).")
    scores, own = st.columns([3, 2], gap="large") if wide else (st.container(), st.container())
    with scores:
        picture = headmap.picture(
            found.scores, title="Copying score", selected=head, off=off,
            scale=theme.Scale("Copying", lo=-1, hi=1, palette="change"),
        )  # fmt: skip
        draw(picture, key="copying_map", on_change=state.focus_on)
    with own:
        label, values = theme.head_label(*head), found.eigenvalues[head]
        if not np.isfinite(values).all():
            st.caption(f"The weights of {label} are too large, or not finite, at this step: they have no eigenvalues.")
            return
        values = values[np.argsort(-np.abs(values))]
        score, mean, sd = (theme.fmt(float(one), "share") for one in (found.scores[head], found.mean, found.sd))
        st.caption(
            f"The eigenvalues of the OV circuit of {label}: copying score **{score}**, of random heads {mean} ± {sd}."
        )
        plot(figures.spectrum(values), key="spectrum", alt=f"Eigenvalues of {label}",
             numbers=lambda: {"real part": values.real.tolist(), "imaginary part": values.imag.tolist(),
                              "size": np.abs(values).tolist()})  # fmt: skip
