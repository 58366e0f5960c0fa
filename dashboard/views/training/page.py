"""Training: did it learn, when did heads change, and what does it write?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import head_scores, rows
from dashboard.shared import choosers
from dashboard.shared.entropy_bound import draw_bound
from dashboard.shared.history import choose_view, draw_measure
from dashboard.shared.mount import draw
from dashboard.state import MOST_OVER
from dashboard.views.training.facts import draw_divergence, draw_facts, draw_samples
from tracer.analysis import training_curves
from tracer.analysis.over_seeds import FEWEST, HIGHEST, LOWEST, SEEDS, mean_over_seeds
from tracer.measures import MEASURES, Measure, in_trace, measures_in
from tracer.measures.intervals import margins, within
from tracer.measures.measure import LAYER
from tracer.measures.references import references
from tracer.pictures import curves
from tracer.pictures.scales import of_measure
from tracer.store import Run, nearest_row
from tracer.store.choosing import differences, settings

if TYPE_CHECKING:
    import xarray as xr

HEIGHT = 260
POSITION_LINES = 6
FEW = 8
"""Rows of a trace that make no curve."""
LOSSES = {"train_loss": "train", "val_loss": "held-out"}
UNIFORM = "uniform"
"""The name of the reference that is a guess."""
COPYING = {"repeat_loss": "repeated", "first_copy_loss": "when new"}
CONTEXT = {"icl_score": "ICL"}
TOGETHER, LONGEST_TITLE = 6, 44
"""Of a user's numbers of one unit: as many as a chart names beside its lines, and characters of a heading."""
PACE = {"learning_rate": "learning rate", "tokens_per_second": "tokens a second"}
"""Of every update, in runs that are watched."""
PARTS = 400
"""Of a curve of every update, each drawn by its extremes."""
OFTEN_MISSING = {
    "training loss": ["train_loss"], "held-out loss": ["val_loss"], "copying": list(COPYING),
    "use of context": list(CONTEXT), "loss by position": ["loss_by_position"],
}  # fmt: skip
"""Variables that runs of other people's models may lack, in the words of the page."""
UNITS = (
    "Nats: minus the natural logarithm of the probability given to the token that came; 0 is certain. "
    "Perplexity: e to that power, as if it chose among so many tokens."
)
Section = tuple[Iterable[str], Callable[[], None]]
"""The variables that a section shows, one of which must hold something, and what draws it."""


def page() -> None:
    choosers.heading("Training", "Did it learn, when did its heads change, and what does it write?")
    chooser, other, stepper, axis = choosers.row([3, 3, 5, 2], grows=1)
    with chooser:
        run = choosers.choose_run()
    with other:
        compared = _choose_compared(run)
    with stepper:
        choosers.choose_record(run)
    with axis:
        choosers.choose_axis()
    choosers.tick(run, lambda: _draw(run, compared))


def _choose_compared(run: Run) -> list[Run]:
    """Further runs whose curves are laid over this one's; the figures and the heads are compared with the first."""
    others = [other.name for other in loading.runs() if other.name != run.name]
    parent = (run.meta.get("parent") or {}).get("run")
    others.sort(key=lambda name: name != parent)  # a fork lies over its parent
    selection = state.read()
    chosen = [name for name in dict.fromkeys((selection.compare, *selection.over)) if name not in (None, run.name)]
    others += [name for name in chosen if name not in others]

    def choose(names: list[str]) -> None:
        state.update(compare=names[0] if names else None, over=tuple(names[1:]))

    names = st.multiselect(
        "Compare with", others, placeholder="no other run", disabled=not others, max_selections=MOST_OVER - 1,
        format_func=lambda name: f"{name} (parent)" if name == parent else name,
        **state.control("compare_box", chosen[: MOST_OVER - 1], choose),
    )  # fmt: skip
    opened = []
    for name in names:
        try:
            opened.append(loading.run(name))
        except (ValueError, OSError) as error:
            st.text(str(error))
    return opened


def _draw(run: Run, compared: list[Run]) -> None:
    """Everything below the choices; this is what a live run draws again."""
    draw_divergence(run)
    trace = choosers.recorded(run)
    if trace is None:
        return
    traces = {run.name: trace}
    for other in compared:
        traces |= _readable(other)
    step = state.read().step
    laid_over = next((other for other in compared if other.name in traces), None)
    each = {one.name: found for one in (run, *compared) if (found := loading.updates(one)) is not None}
    draw_facts(run, trace, step, each, None if laid_over is None else (laid_over.name, traces[laid_over.name]))
    _draw_few(run, trace)
    if head_scores.head_measures(trace):
        comparable = laid_over is not None and head_scores.has_heads(traces[laid_over.name])
        _draw_heads(run, trace, laid_over if comparable else None)

    lines = _over_seeds([run, *compared], traces)
    each = {name: found for name, found in each.items() if name in lines}

    def row(*sections: Section) -> None:
        """Sections side by side, those that hold something."""
        held = [one for names, one in sections if any(head_scores.holds(t, n) for t in traces.values() for n in names)]
        for column, draw_one in zip(st.columns(len(held), gap="large") if held else (), held, strict=True):
            with column:
                draw_one()

    row((LOSSES, lambda: _draw_loss(run, lines, each)), (COPYING, lambda: _draw_copying(run, lines)))
    row((CONTEXT, lambda: _draw_context(lines)), (("loss_by_position",), lambda: _draw_positions(run, traces, step)))
    _draw_own(run, traces, each)
    _draw_pace(each)
    _draw_missing(run, trace)
    draw_samples(run, step)


def _over_seeds(runs: list[Run], traces: dict[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The traces whose losses are drawn: where runs differ in nothing but the seed, their mean if that is asked for."""
    n = len(traces)
    if n < FEWEST or set(differences([settings(run) for run in runs if run.name in traces])) != {"seed"}:
        return traces
    st.toggle(
        f"Mean of the {n} seeds", **state.control("mean_box", state.read().mean, lambda on: state.update(mean=on))
    )
    if not state.read().mean:
        return traces
    return {f"mean of {n} seeds": mean_over_seeds(list(traces.values()), [*LOSSES, *COPYING, *CONTEXT])}


def _draw_few(run: Run, trace: xr.Dataset) -> None:
    """Why a short loop of somebody else's has hardly a curve, and what to write for one."""
    n, last = trace.sizes["step"], int(trace["step"][-1])
    elsewhere = run.why_not("recipe") and run.can("training")
    if elsewhere and not run.live and n < FEW and last >= FEW:
        every = max(1, last // 20)
        st.caption(
            f"Measured at {n} steps only: by itself, measuring takes 1 % of the training time, which is little in a "
            f"short loop. `every={every}`, given to `tracer.watch` or to the callback, measures at every "
            f"{'step' if every == 1 else f'{every}th step'}."
        )


def _draw_missing(run: Run, trace: xr.Dataset) -> None:
    """One sentence on what the page has no numbers for, where a reader may look for it."""
    offered = OFTEN_MISSING if head_scores.predicts_tokens(trace) else {"training loss": ["train_loss"]}
    missing = [what for what, names in offered.items() if not any(head_scores.holds(trace, n) for n in names)]
    if missing:
        st.caption(f"Not measured in this run: {', '.join(missing)}.")
    choosers.say_why_no_heads(run)


def _readable(compared: Run) -> dict[str, xr.Dataset]:
    try:
        trace = loading.trace(compared)
    except ValueError as error:
        st.text(str(error))
        return {}
    return {compared.name: trace} if trace.sizes["step"] else {}


def _draw_pace(each: dict[str, xr.Dataset]) -> None:
    """What a loop that is watched did at every update, beside its loss."""
    shown = [name for name in PACE if any(head_scores.holds(found, name) for found in each.values())]
    if not shown:
        return
    for column, name in zip(st.columns(2, gap="large"), shown, strict=False):
        with column:
            st.header(MEASURES[name].label, anchor=False)
            st.caption(f"At every update.{_thinned(each)}{' A colour a run.' * (len(each) > 1)}")
            _lines(each, {name: PACE[name]}, name, theme.Scale(MEASURES[name].label, MEASURES[name].unit))


def _draw_own(run: Run, traces: dict[str, xr.Dataset], each: dict[str, xr.Dataset]) -> None:
    """Numbers that only their author knows, as the trace says what they are: those of one unit on one chart, of those
    of each layer a line a layer."""
    lines = (*((one, ("step",)) for one in traces.values()), *((one, LAYER) for one in traces.values()))
    names = dict.fromkeys(name for trace, dims in lines for name in measures_in(trace, dims))
    held = {name: [one for one in traces.values() if head_scores.holds(one, name)] for name in names}
    own = [in_trace(found[0], name) for name, found in held.items() if found and name not in MEASURES]
    charts = _charts(own) if len(traces) == 1 else [[one] for one in own]  # of several runs, colour and dash tell runs
    for i in range(0, len(charts), 2):
        for column, measures in zip(st.columns(2, gap="large"), charts[i : i + 2], strict=False):
            with column:
                first = measures[0]
                st.header(theme.unmarked(_title(measures)), anchor=False)
                every = {run: x for run, x in each.items() if any(head_scores.holds(x, one.name) for one in measures)}
                st.caption(theme.unmarked(_sources(measures)) + _thinned({} if first.dims == LAYER else every))
                values = np.concatenate([x[one.name].values.ravel() for one in measures for x in held[one.name]])
                scale = of_measure(first, run.about.setting, values)
                scale = scale if len(measures) == 1 else replace(scale, label="Value")
                if first.dims == LAYER:
                    _lines(*_by_layer(traces, first.name), f"own {first.name}", scale)
                else:
                    _lines(traces, {one.name: one.label for one in measures}, f"own {first.name}", scale, each=every)


def _charts(own: Iterable[Measure]) -> list[list[Measure]]:
    """The numbers of each chart, in the order of the trace: a few of one unit, where their author says one."""
    charts: list[list[Measure]] = []
    for one in own:
        alike = (c for c in charts if one.unit and (c[0].unit, c[0].dims) == (one.unit, one.dims) and len(c) < TOGETHER)
        together = None if one.dims == LAYER else next(alike, None)
        if together is None:
            charts.append([one])
        else:
            together.append(one)
    return charts


def _title(measures: list[Measure]) -> str:
    """The names of what is on one chart, as far as they fit."""
    n, names = len(measures), ", ".join(one.label for one in measures)
    return names if n == 1 or len(names) <= LONGEST_TITLE else f"{n} numbers ({measures[0].unit})"


def _sources(measures: list[Measure]) -> str:
    """What each is and who says so; what is said of all alike stands once."""
    said = {one.label: f"{one.note or one.formula}. Source: {one.source}." for one in measures}
    alike = set(said.values())
    return alike.pop() if len(alike) == 1 else " ".join(f"{label}: {text}" for label, text in said.items())


def _by_layer(traces: dict[str, xr.Dataset], name: str) -> tuple[dict[str, xr.Dataset], dict[str, str]]:
    """The traces with a variable for each layer, and the labels of these."""
    parted = {
        run: trace[[]].assign({f"L{i}": trace[name].isel(layer=i, drop=True) for i in range(trace.sizes["layer"])})
        for run, trace in traces.items() if name in trace and trace[name].dims == LAYER
    }  # fmt: skip
    return parted, {str(layer): str(layer) for trace in parted.values() for layer in trace.data_vars}


def _draw_loss(run: Run, traces: dict[str, xr.Dataset], each: dict[str, xr.Dataset]) -> None:
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
        f"{_measured_on(run, traces)}{own}{_thinned(each)}{_bands(traces, LOSSES)}{_dashed(traces, LOSSES)}",
        help=UNITS if nats else None,
    )
    lift = training_curves.perplexity if shown == "perplexity" else np.asarray
    label = "Perplexity" if shown == "perplexity" else "Loss"
    unit = "nats" if nats and shown != "perplexity" else ""
    known = {name: loss for name, loss in references(run.meta).items() if nats and name != UNIFORM}
    guess = _guess(run) if nats else None
    chance = None if guess is None else float(lift(guess))
    names = LOSSES if run.can("training") else LOSSES | {"val_loss": "text"}
    marks = tuple((name, float(lift(loss))) for name, loss in known.items())
    scale = theme.Scale(label, unit, chance=chance, mark="uniform guess", marks=marks)
    _lines(traces, names, "loss", scale, lift=lift, each=each)


def _guess(run: Run) -> float | None:
    """The loss of a uniform guess, in nats: over what its source says that it is over, else over the vocabulary."""
    return references(run.meta).get(UNIFORM, choosers.scale("val_loss", run).chance)


def _measured_on(run: Run, traces: dict[str, xr.Dataset]) -> str:
    """Which losses there are, in a sentence."""
    has = {name for trace in traces.values() for name in LOSSES if head_scores.holds(trace, name)}
    said = {"train_loss": "the training batch of each step", "val_loss": choosers.probe(run, "val_loss")}
    return f"On {', and on '.join(said[name] for name in LOSSES if name in has)}."


def _draw_copying(run: Run, traces: dict[str, xr.Dataset]) -> None:
    st.header("Copying", anchor=False)
    said = "Random tokens, then the same again: only a model that copies does better the second time."
    st.caption(f"{said}{_bands(traces, COPYING)}{_dashed(traces, COPYING)}")
    chance = choosers.scale("repeat_loss", run).chance
    _lines(traces, COPYING, "copying", theme.Scale("Loss", "nats", chance=chance, mark="uniform guess"))


def _draw_context(traces: dict[str, xr.Dataset]) -> None:
    st.header("Use of context", anchor=False)
    st.caption(
        "Loss of the same tokens of held-out text after the whole context, minus after a tenth of it. Negative: what "
        f"came before helps.{_bands(traces, CONTEXT)}"
    )
    scale = theme.Scale(MEASURES["icl_score"].label, "nats", chance=0.0, mark="no use of context")
    _lines(traces, CONTEXT, "context", scale)


def _lines(
    traces: dict[str, xr.Dataset], names: dict[str, str], key: str, scale: theme.Scale, lift=np.asarray,
    each: Mapping[str, xr.Dataset] = MappingProxyType({}),
) -> None:  # fmt: skip
    """A few variables of one run, or of two, over steps; a logarithmic scale when their range asks for it.

    `each`: by run, what holds some of them at every update, which is drawn instead.
    """
    several, every, splits = len(traces) > 1, list(traces), list(names)
    held = [(run, name) for run, trace in traces.items() for name in names if head_scores.holds(trace, name)]
    labels = [f"{names[name]} · {_cut(run)}" if several else names[name] for run, name in held]
    lines = [(name, _points(traces[run], each.get(run), name)) for run, name in held]
    steps, values = rows.merge([(points["step"].values, lift(points[name].values)) for name, points in lines])
    band = [
        rows.merge([(points["step"].values, lift(_end(points, name, sign))) for name, points in lines])[1]
        for sign in (-1, 1)
    ]
    if len(set(labels)) < len(labels):
        labels = [f"{label} {i + 1}" for i, label in enumerate(labels)]
    two: dict[str, Any] = {}
    if several:  # colour is the run, dash the split
        two = {"groups": [every.index(run) for run, _ in held], "group_names": every,
               "dashes": [len(splits) - 1 - splits.index(name) for _, name in held]}  # fmt: skip
    blob = curves.pack(steps, values, labels, band=band, log_y=rows.wide_range(values), **two)
    chosen = state.read()
    picture = curves.picture(blob, step=chosen.step, log_x=chosen.log, scale=scale, selectable=False, height=HEIGHT)
    draw(picture, key=key)


def _points(trace: xr.Dataset, each: xr.Dataset | None, name: str) -> xr.Dataset:
    """What a line is drawn from: the trace, or every update, of which the extremes are enough."""
    if each is None or not head_scores.holds(each, name):
        return trace
    return each.isel(step=training_curves.extremes(each[name].values, PARTS))


def _thinned(each: Mapping[str, xr.Dataset]) -> str:
    many = any(found.sizes["step"] > 2 * PARTS for found in each.values())
    return f" Drawn: of each {PARTS}th part, the least and the greatest." if many else ""


def _bands(traces: dict[str, xr.Dataset], names: dict[str, str]) -> str:
    if any(SEEDS in trace.attrs for trace in traces.values()):
        return " Bands: from the lowest to the highest seed."
    recorded = any(margins(trace, name) is not None for trace in traces.values() for name in names)
    return " Bands: 95 % intervals over the texts that it is a mean of." if recorded else ""


def _dashed(traces: dict[str, xr.Dataset], names: dict[str, str]) -> str:
    return f" A colour a run; dashed is {next(iter(names.values()))}." if len(traces) > 1 else ""


def _end(trace: xr.Dataset, name: str, sign: int) -> np.ndarray:
    """The lower (-1) or upper end of the band: of the seeds, or of 95 % intervals, nan where no error was recorded."""
    if SEEDS in trace.attrs:
        return trace[name + (LOWEST if sign < 0 else HIGHEST)].values
    values, around = trace[name].values, margins(trace, name)
    if around is None:
        return np.full(values.shape, np.nan)
    return within(values, around, in_trace(trace, name))[max(sign, 0)]


def _cut(name: str, longest: int = 14) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _draw_heads(run: Run, trace: xr.Dataset, beside: Run | None) -> None:
    """The entropy of every head, and a measure that is chosen, over the same steps."""
    focus, step, log_x = choosers.focus(trace), state.read().step, state.read().log
    first, *others = sorted(head_scores.head_measures(trace), key=lambda name: name != "entropy")
    heatmap = state.read().view == "heatmap"
    left, right = st.columns(2, gap="large", vertical_alignment="bottom")
    with left:
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"):
            st.header(
                f"{theme.unmarked(choosers.measure_of(run, first).label)} of every head", anchor=False, width="content"
            )
            choose_view("heads_view_box")
        said = "High: the head spreads its attention over many tokens. Low: it looks at one. " * (first == "entropy")
        what = "row" if heatmap else "line"
        only = f" Heatmaps are of {theme.unmarked(run.name)} alone." if heatmap and beside else ""
        st.caption(f"{said}One {what} a head; click one to bring it into focus on every page.{only}")
    with right:
        measure = _choose_measure(run, others) if others else first
    shown = [(left, "entropy_curves", first)] + ([(right, "measure_curves", measure)] if measure != first else [])
    for column, key, name in shown:
        with column:
            draw_measure(run, trace, name, focus, step, key=key, height=HEIGHT + 60, log_x=log_x, beside=beside)
    with st.expander("What do these measures say?"):
        for name in dict.fromkeys([first, measure, "val_loss", "repeat_loss", "icl_score"]):
            if head_scores.holds(trace, name):
                st.markdown(choosers.explanation(name, run))
    if first == "entropy":
        draw_bound(run, focus, key="entropy_bound")


def _choose_measure(run: Run, names: list[str]) -> str:
    measure = choosers.measure_in_force(names)
    return st.selectbox(
        "Beside the entropy", names, format_func=lambda name: choosers.measure_of(run, name).label,
        **state.control("training_measure_box", measure, lambda name: state.update(measure=name)),
    )  # fmt: skip


def _draw_positions(run: Run, traces: dict[str, xr.Dataset], step: int | None) -> None:
    """Loss by position at a few steps, early to late, and at the chosen one; of two runs at the chosen one."""
    st.header("Loss by position", anchor=False)
    held = {name: trace for name, trace in traces.items() if head_scores.holds(trace, "loss_by_position")}
    if len(held) > 1:
        st.caption("At the chosen step: the further right, the more the model has read.")
        found = {
            name: trace["loss_by_position"].values[nearest_row(trace["step"].values, step)]
            for name, trace in held.items()
        }
        series = [(np.arange(len(values)), values) for values in found.values()]
        positions, lines = rows.merge(series)
        blob = curves.pack(positions, lines, list(found), log_y=rows.wide_range(lines))
        _draw_by_position(run if run.name in held else None, blob)
        return
    ((name, trace),) = held.items()
    steps, values = trace["step"].values, trace["loss_by_position"].values
    if np.isfinite(values).any(axis=0).sum() < 2:
        st.caption("The loss counts one position alone: there it is the held-out loss.")
        return
    at = "At" if name == run.name else f"Of {theme.unmarked(name)}, at"
    st.caption(f"{at} the chosen step and on the way: the further right, the more the model has read.")
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


def _draw_by_position(run: Run | None, blob: bytes, n_groups: int | None = None) -> None:
    """`run`: whose uniform guess is marked, none where its losses are not among these."""
    chance = None if run is None else _guess(run)
    picture = curves.picture(
        blob, selectable=False, n_groups=n_groups, x_label="position", height=HEIGHT,
        scale=theme.Scale("Loss", "nats", chance=chance, mark="uniform guess"),
    )  # fmt: skip
    draw(picture, key="positions")
