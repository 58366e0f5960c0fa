"""The Ablate page over training: what each head costs at each snapshot, beside its score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import ablation, head_scores
from dashboard.loading.ablation import Setup
from dashboard.shared import choosers
from dashboard.shared.figures import by_head, scatter
from dashboard.shared.mount import draw
from dashboard.shared.plots import plot
from dashboard.shared.sweeping import draw_sweeping
from dashboard.views.ablate.own_metric import choose_metric, measured
from tracer.analysis import when_causal
from tracer.measures import Measure, in_trace
from tracer.pictures import curves
from tracer.store import Run, nearest_row

if TYPE_CHECKING:
    import xarray as xr

HEIGHT = 260


def draw_when(run: Run, setup: Setup, trace: xr.Dataset) -> None:
    """Curves over training once the run was swept; before, and while it is, the button and the progress."""
    if (own := choose_metric(run)) is not None:
        _draw_own(run, setup, trace, own)
        return
    st.caption(
        "Each line is one head, switched off by itself at every snapshot: by how much the loss rises. Beside it, the "
        "induction score of that head at the same step."
    )
    try:
        found = draw_sweeping(run)
    except ValueError as error:  # another sweep would stumble over the same
        st.text(str(error))
        return
    if found is None:
        return
    effect, notes = measured(found, setup)
    if not effect.size:
        return
    chosen = effect.isel(probe=0)
    notes = [f"Measured on {ablation.WORDS[str(chosen['probe'].values)]}", *notes]
    st.caption(f"{', '.join(notes)}.")
    _draw_curves(run, setup, trace, chosen)


def _draw_own(run: Run, setup: Setup, trace: xr.Dataset, found: xr.Dataset) -> None:
    """The curves of a user's metric, which says nothing of what is large."""
    effect, notes = measured(found, setup)
    if not effect.size:
        st.caption("Nothing was measured in this way.")
        return
    chosen, said = effect.isel(probe=0), in_trace(found, str(effect.name))
    on = ablation.WORDS.get(str(chosen["probe"].values), "the given tokens")
    what = f"Each line is one head, switched off by itself: {theme.unmarked(said.label)}"
    st.caption(f"{', '.join([what, f'on {on}', *notes])}. Above 0: higher with that head off.")
    _draw_curves(run, setup, trace, chosen, said)


def _draw_curves(run: Run, setup: Setup, trace: xr.Dataset, chosen: xr.DataArray, own: Measure | None = None) -> None:
    """`own`: what is said of a user's metric, of which curves are all that there is."""
    focus = choosers.focus(trace, setup.step)
    label = theme.head_label(*focus)
    steps, effect = chosen["step"].values, chosen.values
    scored = head_scores.holds(trace, "induction")

    def lines(values: np.ndarray, at: np.ndarray, key: str, scale: theme.Scale) -> None:
        picture = curves.picture(
            curves.pack_heads(at, values), selected=label, step=setup.step, scale=scale, height=HEIGHT,
        )  # fmt: skip
        draw(picture, key=key, on_change=state.focus_on)

    left, right = st.columns(2, gap="large")
    with left:
        lines(effect, steps, "when_effect", theme.Scale("Effect of the head", own.unit if own else "nats", digits=3))
    if not scored:
        right.caption("This run has no induction scores to lay beside it.")
        return
    with right:
        last = trace.sel(step=slice(None, int(steps[-1])))
        lines(last["induction"].values, last["step"].values, "when_score", choosers.scale("induction", run))
    if own:
        return
    score = trace["induction"].sel(step=steps, method="nearest").values
    if steps[-1] < run.steps[-1]:  # what a head comes to is not known before its end
        st.caption(
            f"{len(steps)} of {len(run.steps)} snapshots so far: what became of {label} is said once all are in."
        )
    else:
        st.markdown(when_causal.sentence(label, steps, score[(slice(None), *focus)], effect[(slice(None), *focus)]))
        if run.live or len(steps) < len(run.steps):
            st.caption(f"Of {len(steps)} snapshots so far.")
    at = nearest_row(steps, setup.step)
    _draw_scatter(score[at], effect[at], focus, int(steps[at]))


def _draw_scatter(score: np.ndarray, effect: np.ndarray, focus: tuple[int, int], step: int) -> None:
    left, right = st.columns([5, 4], gap="large")
    with left:
        figure = scatter(
            score, effect, x_label="Induction score", y_label="Effect of the head (nats)", selected=focus,
            edges=(when_causal.STRONG, when_causal.COSTLY), corners=("look-alikes", "hidden"),
        )  # fmt: skip
        plot(figure, key="when_scatter", alt=f"Score against effect of every head at step {step:,}",
             on_pick=state.focus_on, numbers=lambda: by_head({"score": score, "effect": effect}))  # fmt: skip
    with right:
        st.markdown(f"**Score against effect at step {step:,}**")
        like, unseen = when_causal.lookalikes(score, effect), when_causal.hidden(score, effect)
        st.markdown(
            f"Look-alikes, with a score above {when_causal.STRONG} and an effect below {when_causal.COSTLY} nats: "
            f"{_names(like)}." + (" Others may do the same work: switch them off together." if like else "")
        )
        st.markdown(
            f"Hidden, with an effect above {when_causal.COSTLY} nats and no such score: {_names(unseen)}."
            + (" Previous-token heads are often among them." if unseen else "")
        )
        if len(like) > 1:
            st.button("Switch the look-alikes off together", key="off_lookalikes",
                      on_click=lambda: state.update(off=tuple(like)))  # fmt: skip


def _names(heads: list[tuple[int, int]]) -> str:
    return " ".join(theme.head_label(*h) for h in heads) or "none"
