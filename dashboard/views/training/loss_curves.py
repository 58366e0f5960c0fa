"""Training: losses over steps and by position, copying, and the use of context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import head_scores, rows
from dashboard.shared import choosers
from dashboard.shared.mount import draw
from dashboard.views.training.curve_lines import HEIGHT, bands, draw_lines, thinned
from tracer.analysis import training_curves
from tracer.measures import MEASURES
from tracer.pictures import curves
from tracer.store import Run, nearest_row

if TYPE_CHECKING:
    import xarray as xr

POSITION_LINES = 6
LOSSES = {"train_loss": "train", "val_loss": "held-out"}
UNIFORM = "uniform"
"""The name of the reference that is a guess."""
COPYING = {"first_copy_loss": "when new", "repeat_loss": "repeated"}
CONTEXT = {"icl_score": "ICL"}
UNITS = (
    "Nats: minus the natural logarithm of the probability given to the token that came; 0 is certain. "
    "Perplexity: e to that power, as if it chose among so many tokens."
)


def draw_loss(run: Run, traces: dict[str, xr.Dataset], each: dict[str, xr.Dataset]) -> None:
    nats = all(head_scores.predicts_tokens(trace) for trace in traces.values())
    shown = "nats"
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"):
        st.header("Loss", anchor=False, width="content")
        if nats:
            shown = state.read().unit
            st.segmented_control(
                "Unit of the loss", ["nats", "perplexity"], required=True, label_visibility="collapsed",
                **state.control("loss_box", shown, lambda unit: state.update(unit=unit)),
            )  # fmt: skip
    own = "" if nats else " The loss is the one that its own training loop computes."
    if (trained_on := run.meta.get("loss")) is not None:
        own = f" Next-token losses; the run was trained on {theme.unmarked(trained_on)}, drawn below."
    st.caption(
        f"{_measured_on(run, traces)}{own}{thinned(each)}{bands(traces, LOSSES)}",
        help=UNITS if nats else None,
    )
    lift = training_curves.perplexity if shown == "perplexity" else np.asarray
    label = "Perplexity" if shown == "perplexity" else "Loss"
    unit = "nats" if nats and shown != "perplexity" else ""
    known = {name: loss for name, loss in run.meta.get("references", {}).items() if nats and name != UNIFORM}
    guess = uniform_guess(run) if nats else None
    chance = None if guess is None else float(lift(guess))
    names = LOSSES if run.can("training") else LOSSES | {"val_loss": "text"}
    marks = tuple((name, float(lift(loss))) for name, loss in known.items())
    scale = theme.Scale(label, unit, chance=chance, mark="uniform guess", marks=marks)
    draw_lines(traces, names, "loss", scale, lift=lift, each=each, on_timeline=True)


def uniform_guess(run: Run) -> float | None:
    """The loss of a uniform guess, in nats: over what its source says that it is over, else over the vocabulary."""
    return run.meta.get("references", {}).get(UNIFORM, choosers.scale("val_loss", run).chance)


def _measured_on(run: Run, traces: dict[str, xr.Dataset]) -> str:
    """Which losses there are, in a sentence."""
    has = {name for trace in traces.values() for name in LOSSES if head_scores.holds(trace, name)}
    said = {"train_loss": "the training batch of each step", "val_loss": choosers.probe(run, "val_loss")}
    return f"On {', and on '.join(said[name] for name in LOSSES if name in has)}."


def draw_copying(run: Run, traces: dict[str, xr.Dataset]) -> None:
    st.header("Copying", anchor=False)
    said = "Random tokens, then the same again: only a model that copies does better the second time."
    st.caption(f"{said}{bands(traces, COPYING)}")
    chance = choosers.scale("repeat_loss", run).chance
    draw_lines(traces, COPYING, "copying", theme.Scale("Loss", "nats", chance=chance, mark="uniform guess"))


def draw_context(traces: dict[str, xr.Dataset]) -> None:
    st.header("Use of context", anchor=False)
    st.caption(f"How much a long context helps compared with a short one (below 0: it helps).{bands(traces, CONTEXT)}")
    scale = theme.Scale(MEASURES["icl_score"].label, "nats", chance=0.0, mark="no use of context")
    draw_lines(traces, CONTEXT, "context", scale)


def draw_positions(run: Run, traces: dict[str, xr.Dataset], step: int | None) -> None:
    """Loss by position at a few steps, early to late, and at the chosen one; of two runs at the chosen one."""
    st.header("Loss by position", anchor=False)
    held = {name: trace for name, trace in traces.items() if head_scores.holds(trace, "loss_by_position")}
    if len(held) > 1:
        st.caption("At the chosen step: further right, the model has read more.")
        found = {
            name: trace["loss_by_position"].values[nearest_row(trace["step"].values, step)]
            for name, trace in held.items()
        }
        series = [(np.arange(len(values)), values) for values in found.values()]
        positions, lines = rows.merge(series)
        runs = list(found)
        blob = curves.pack(
            positions, lines, runs, groups=[0] * len(runs), dashes=range(len(runs)), dash_names=runs,
            log_y=rows.wide_range(lines),
        )  # fmt: skip
        _draw_by_position(run if run.name in held else None, blob, colours=theme.inks())
        return
    ((name, trace),) = held.items()
    steps, values = trace["step"].values, trace["loss_by_position"].values
    if np.isfinite(values).any(axis=0).sum() < 2:
        st.caption("The loss counts one position alone: there it is the held-out loss.")
        return
    at = "At" if name == run.name else f"Of {theme.unmarked(name)}, at"
    st.caption(f"{at} the chosen step and at earlier ones: further right, the model has read more.")
    chosen = nearest_row(steps, step)
    loss = trace["val_loss"].values if head_scores.holds(trace, "val_loss") else values.mean(axis=1)
    drawn = sorted({*rows.stages(loss, POSITION_LINES - 1), chosen})
    blob = curves.pack(
        np.arange(values.shape[1]),
        values[drawn],
        [f"step {steps[i]:,}" for i in drawn],
        groups=np.linspace(0, 8, len(drawn)).round().astype(int).tolist(),
        log_y=rows.wide_range(values[drawn]),
    )
    _draw_by_position(run if name == run.name else None, blob, n_groups=9)


def _draw_by_position(run: Run | None, blob: bytes, **colours: Any) -> None:
    """`run`: whose uniform guess is marked, none where its losses are not among these."""
    chance = None if run is None else uniform_guess(run)
    picture = curves.picture(
        blob, selectable=False, x_label="position", height=HEIGHT, **colours,
        scale=theme.Scale("Loss", "nats", chance=chance, mark="uniform guess"),
    )  # fmt: skip
    draw(picture, key="positions")
