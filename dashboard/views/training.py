"""Training: did it learn, when did heads change, and what does it write?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading, parts, state, theme
from dashboard.components import payload
from dashboard.components.curves import curves
from dashboard.facts import draw_divergence, draw_facts, draw_samples
from dashboard.figures import rows
from tracer.measures import HEAD_MEASURES, MEASURES
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

HEIGHT = 260
POSITION_LINES = 6


def page() -> None:
    parts.heading("Training", "Did it learn, when did its heads change, and what does it write?")
    chooser, other, stepper, axis = st.columns([3, 3, 5, 2])
    with chooser:
        run = parts.choose_run()
    with other:
        compared = _choose_compared(run)
    with stepper:
        parts.choose_record(run)
    with axis:
        log_x = (
            st.segmented_control("Steps", ["linear", "log"], key="axis_box", default="linear", required=True) == "log"
        )
    parts.tick(run, lambda: _draw(run, compared, log_x))


def _choose_compared(run: Run) -> Run | None:
    """A second run whose curves are laid over this one's."""
    others = [other.name for other in loading.runs() if other.name != run.name]
    selection = state.read()
    if selection.compare is not None and selection.compare not in (run.name, *others):
        others.append(selection.compare)
    state.show("compare_box", selection.compare if selection.compare in others else None)
    name = st.selectbox(
        "Compare with",
        others,
        key="compare_box",
        placeholder="no other run",
        disabled=not others,
        on_change=_compare,
    )
    if name is None:
        return None
    try:
        return loading.run(name)
    except (ValueError, OSError) as error:
        st.text(str(error))
        return None


def _compare() -> None:
    state.update(compare=st.session_state["compare_box"])


def _draw(run: Run, compared: Run | None, log_x: bool) -> None:
    """Everything below the choices; this is what a live run draws again."""
    draw_divergence(run)
    trace = parts.recorded(run)
    if trace is None:
        return
    draw_facts(run, trace, state.read().step)
    traces = {run.name: trace}
    if compared is not None:
        traces |= _readable(compared)
    step = state.read().step
    left, right = st.columns(2, gap="large")
    with left:
        _draw_loss(run, traces, log_x, step)
    with right:
        _draw_copying(run, traces, log_x, step)
    _draw_heads(run, trace, log_x, step)
    left, right = st.columns(2, gap="large")
    with left:
        _draw_context(run, traces, log_x, step)
    with right:
        _draw_positions(run, trace, step)
    draw_samples(run, step)


def _readable(compared: Run) -> dict[str, xr.Dataset]:
    try:
        trace = loading.trace(compared)
    except ValueError as error:
        st.text(str(error))
        return {}
    return {compared.name: trace} if trace.sizes["step"] else {}


def _draw_loss(run: Run, traces: dict[str, xr.Dataset], log_x: bool, step: int | None) -> None:
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"):
        st.subheader("Loss", anchor=False, width="content")
        shown = st.segmented_control(
            "Unit of the loss",
            ["nats", "perplexity"],
            key="loss_box",
            default="nats",
            required=True,
            label_visibility="collapsed",
        )
    st.caption(
        "On the training batch of each step, and on held-out text that is never trained on. Nats: minus the "
        "natural logarithm of the probability given to the token that came; 0 is certain. Perplexity: e to that power."
    )
    lift = rows.perplexity if shown == "perplexity" else np.asarray
    scale = parts.scale("val_loss", run)
    label = "Perplexity" if shown == "perplexity" else "Loss"
    unit = "" if shown == "perplexity" else "nats"
    chance = float(lift(scale.chance)) if scale.chance is not None else None
    _lines(
        traces,
        {"train_loss": "train", "val_loss": "held-out"},
        "loss",
        theme.Scale(label, unit, chance=chance, mark="knows nothing"),
        log_x,
        step,
        lift=lift,
    )


def _draw_copying(run: Run, traces: dict[str, xr.Dataset], log_x: bool, step: int | None) -> None:
    st.subheader("Copying", anchor=False)
    st.caption("Random tokens, then the same again: only a model that copies does better the second time.")
    names = {"repeat_loss": "repeated", "first_copy_loss": "when new"}
    chance = parts.scale("repeat_loss", run).chance
    _lines(traces, names, "copying", theme.Scale("Loss", "nats", chance=chance, mark="knows nothing"), log_x, step)


def _draw_context(run: Run, traces: dict[str, xr.Dataset], log_x: bool, step: int | None) -> None:
    st.subheader("Use of context", anchor=False)
    st.caption("Loss late in the context minus loss early in it, on held-out text. Negative: what came before helps.")
    scale = theme.Scale(MEASURES["icl_score"].label, "nats", chance=0.0, mark="no use of context")
    _lines(traces, {"icl_score": "ICL"}, "context", scale, log_x, step)


def _lines(
    traces: dict[str, xr.Dataset],
    names: dict[str, str],
    key: str,
    scale: theme.Scale,
    log_x: bool,
    step: int | None,
    lift=np.asarray,
) -> None:
    """A few variables of one run, or of two, over steps; a logarithmic scale when their range asks for it."""
    several = len(traces) > 1
    labels = [f"{label} · {_cut(run)}" if several else label for run in traces for label in names.values()]
    series = [(trace["step"].values, lift(trace[name].values)) for trace in traces.values() for name in names]
    steps, values = rows.merge(series)
    if len(set(labels)) < len(labels):
        labels = [f"{label} {i + 1}" for i, label in enumerate(labels)]
    blob = payload.curves(steps, values, labels, log_y=rows.wide_range(values))
    curves(blob, key=key, step=step, log_x=log_x, scale=scale, selectable=False, height=HEIGHT)


def _cut(name: str, longest: int = 14) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _draw_heads(run: Run, trace: xr.Dataset, log_x: bool, step: int | None) -> None:
    focus = theme.head_label(*parts.focus(run, trace["induction"].values[-1]))
    left, right = st.columns(2, gap="large", vertical_alignment="bottom")
    with left:
        st.subheader("Every head", anchor=False)
        st.caption(f"One line a head; {focus} is in focus. Click a line to bring its head into focus on every page.")
    with right:
        measure = _choose_measure()
    left, right = st.columns(2, gap="large")
    with left:
        _head_curves(run, trace, "entropy", focus, log_x, step)
    with right:
        _head_curves(run, trace, measure, focus, log_x, step)
    with st.expander("What do these measures say?"):
        for name in dict.fromkeys(["entropy", measure, "val_loss", "repeat_loss", "icl_score"]):
            parts.explain(name, run)


def _choose_measure() -> str:
    names = [name for name in HEAD_MEASURES if name != "entropy"]
    wanted = state.read().measure
    state.show("training_measure_box", wanted if wanted in names else "induction")
    return st.selectbox(
        "Beside the entropy",
        names,
        key="training_measure_box",
        format_func=lambda name: MEASURES[name].label,
        on_change=_colour,
    )


def _colour() -> None:
    state.update(measure=st.session_state["training_measure_box"])


def _head_curves(run: Run, trace: xr.Dataset, measure: str, focus: str, log_x: bool, step: int | None) -> None:
    key = "entropy_curves" if measure == "entropy" else "measure_curves"
    curves(
        loading.head_curves(run, measure),
        key=key,
        selected=focus,
        step=step,
        log_x=log_x,
        n_groups=trace.sizes["layer"],
        scale=parts.scale(measure, run, trace[measure].values),
        height=HEIGHT + 20,
        on_change=_choose_head,
    )


def _choose_head(label: str | None) -> None:
    layer, head = theme.parse_head(label) if label else (None, None)
    state.update(layer=layer, head=head)


def _draw_positions(run: Run, trace: xr.Dataset, step: int | None) -> None:
    """Loss by position at a few steps, early to late, and at the chosen one."""
    st.subheader("Loss by position", anchor=False)
    st.caption("At the chosen step and on the way: the further right, the more the model has read.")
    steps, values = trace["step"].values, trace["loss_by_position"].values
    chosen = int(np.abs(steps - (steps[-1] if step is None else step)).argmin())
    at = sorted({*rows.stages(trace["val_loss"].values, POSITION_LINES - 1), chosen})
    colours = np.linspace(0, 8, len(at)).round().astype(int).tolist()
    blob = payload.curves(
        np.arange(values.shape[1]),
        values[at],
        [f"step {steps[i]}" for i in at],
        groups=colours,
        log_y=rows.wide_range(values[at]),
    )
    curves(
        blob,
        key="positions",
        selectable=False,
        n_groups=9,
        x_label="position",
        height=HEIGHT,
        scale=theme.Scale("Loss", "nats", chance=parts.scale("val_loss", run).chance, mark="knows nothing"),
    )
