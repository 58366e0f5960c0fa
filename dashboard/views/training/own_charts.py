"""Training: numbers that only their author knows, those of one unit on one chart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import theme
from dashboard.loading import head_scores
from dashboard.views.training.curve_lines import draw_lines, thinned
from tracer.measures import MEASURES, Measure, in_trace, measures_in
from tracer.measures.measure import LAYER
from tracer.pictures.scales import of_measure
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

TOGETHER, LONGEST_TITLE = 6, 44
"""Of a user's numbers of one unit: as many as a chart names beside its lines, and characters of a heading."""


def draw_own(run: Run, traces: dict[str, xr.Dataset], each: dict[str, xr.Dataset]) -> None:
    """Numbers that only their author knows, as the trace says what they are: those of one unit on one chart, of those
    of each layer a line a layer."""
    lines = (*((one, ("step",)) for one in traces.values()), *((one, LAYER) for one in traces.values()))
    names = dict.fromkeys(name for trace, dims in lines for name in measures_in(trace, dims))
    held = {name: [one for one in traces.values() if head_scores.holds(one, name)] for name in names}
    own = [in_trace(found[0], name) for name, found in held.items() if found and name not in MEASURES]
    charts = _charts(own) if len(traces) == 1 else [[one] for one in own]  # of several runs, dash tells runs
    for i in range(0, len(charts), 2):
        for column, measures in zip(st.columns(2, gap="large"), charts[i : i + 2], strict=False):
            with column:
                first = measures[0]
                st.header(theme.unmarked(_title(measures)), anchor=False)
                every = {run: x for run, x in each.items() if any(head_scores.holds(x, one.name) for one in measures)}
                st.caption(theme.unmarked(_sources(measures)) + thinned({} if first.dims == LAYER else every))
                values = np.concatenate([x[one.name].values.ravel() for one in measures for x in held[one.name]])
                scale = of_measure(first, run.about.setting, values)
                scale = scale if len(measures) == 1 else replace(scale, label="Value")
                if first.dims == LAYER:
                    draw_lines(*_by_layer(traces, first.name), f"own {first.name}", scale)
                else:
                    draw_lines(
                        traces, {one.name: one.label for one in measures}, f"own {first.name}", scale, each=every
                    )


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
