"""A few variables over steps as lines of one chart, with their bands, of one run or of several."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dashboard import state, theme
from dashboard.loading import head_scores, rows
from dashboard.shared.mount import draw
from tracer.analysis import training_curves
from tracer.analysis.over_seeds import HIGHEST, LOWEST, SEEDS
from tracer.measures import in_trace
from tracer.measures.intervals import margins, within
from tracer.pictures import curves

if TYPE_CHECKING:
    import xarray as xr

PARTS = 400
"""Of a curve of every update, each drawn by its extremes."""
HEIGHT = 260
"""Of a chart, in pixels."""


def draw_lines(
    traces: dict[str, xr.Dataset], names: dict[str, str], key: str, scale: theme.Scale, lift=np.asarray,
    each: Mapping[str, xr.Dataset] = MappingProxyType({}), on_timeline: bool = False,
) -> None:  # fmt: skip
    """A few variables of one run, or of several, over steps; a logarithmic scale when their range asks for it.

    The last variable is in ink, one before it grey; a run is a way of dashing. `each`: by run, what holds some of them
    at every update, which is drawn instead. `on_timeline`: steps stand below those of the timeline.
    """
    several, every, splits = len(traces) > 1, list(traces), list(names)
    held = [(run, name) for run, trace in traces.items() for name in names if head_scores.holds(trace, name)]
    labels = [f"{names[name]} · {_cut(run)}" if several else names[name] for run, name in held]
    lines = [(name, _points(traces[run], each.get(run), name)) for run, name in held]
    steps, values = rows.merge([(points["step"].values, lift(points[name].values)) for name, points in lines])
    band = [
        rows.merge([(points["step"].values, lift(end_of(points, name, sign))) for name, points in lines])[1]
        for sign in (-1, 1)
    ]
    if len(set(labels)) < len(labels):
        labels = [f"{label} {i + 1}" for i, label in enumerate(labels)]
    groups = [splits.index(name) for _, name in held]
    told: dict[str, Any] = {}
    if several:
        told = {"group_names": list(names.values()) if len(names) > 1 else [],
                "dashes": [every.index(run) for run, _ in held], "dash_names": every}  # fmt: skip
    blob = curves.pack(steps, values, labels, groups=groups, band=band, log_y=rows.wide_range(values), **told)
    chosen = state.read()
    picture = curves.picture(
        blob, step=chosen.step, log_x=chosen.log, scale=scale, selectable=False, height=HEIGHT,
        colours=theme.inks(len(names)) if len(names) <= len(theme.SPLITS) else None, on_timeline=on_timeline,
    )  # fmt: skip
    draw(picture, key=key)


def _points(trace: xr.Dataset, each: xr.Dataset | None, name: str) -> xr.Dataset:
    """What a line is drawn from: the trace, or every update, of which the extremes are enough."""
    if each is None or not head_scores.holds(each, name):
        return trace
    return each.isel(step=training_curves.extremes(each[name].values, PARTS))


def thinned(each: Mapping[str, xr.Dataset]) -> str:
    many = any(found.sizes["step"] > 2 * PARTS for found in each.values())
    return f" Drawn: lowest and highest of each 1/{PARTS} of the run." if many else ""


def bands(traces: dict[str, xr.Dataset], names: dict[str, str]) -> str:
    if any(SEEDS in trace.attrs for trace in traces.values()):
        return " Bands: from the lowest to the highest seed."
    recorded = any(margins(trace, name) is not None for trace in traces.values() for name in names)
    return " Bands: 95 % intervals over texts." if recorded else ""


def end_of(trace: xr.Dataset, name: str, sign: int) -> np.ndarray:
    """The lower (-1) or upper end of the band: of the seeds, or of 95 % intervals, nan where no error was recorded."""
    if SEEDS in trace.attrs:
        return trace[name + (LOWEST if sign < 0 else HIGHEST)].values
    values, around = trace[name].values, margins(trace, name)
    if around is None:
        return np.full(values.shape, np.nan)
    return within(values, around, in_trace(trace, name))[max(sign, 0)]


def _cut(name: str, longest: int = 14) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
