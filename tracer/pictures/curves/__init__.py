"""Curves over training: a few named lines or hundreds of heads; the nearest lights up, a click selects it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures import payload
from tracer.pictures.colours import LINES, group_colours, layer_colours
from tracer.pictures.picture import Picture
from tracer.pictures.scales import Scale, head_label


def picture(
    blob: bytes,
    *,
    selected: str | None = None,
    partner: str | None = None,
    step: float | None = None,
    log_x: bool = False,
    scale: Scale | None = None,
    x_label: str = "step",
    selectable: bool = True,
    n_groups: int | None = None,
    colours: dict[str, list[str]] | None = None,
    on_timeline: bool = False,
    height: int = 320,
) -> Picture:
    """`pack(...)`, drawn; picks a label, or None.

    A vertical line marks `step`, a dashed one the scale's chance; groups that are no layers have these `colours` by
    theme, or `n_groups` (default 8) hues. `on_timeline`: on a wide page steps stand below those of the timeline.
    With the `selected` line its `partner` of another run lights up, by default every "selected · run".
    """
    header = payload.header(blob)
    n_layers, n_more = header["n_layers"], len(header["group_names"]) - header["n_layers"]
    cue = {
        "step": step,
        "partner": partner,
        "log_x": log_x,
        "scale": (scale or Scale("Value", digits=3)).payload(),
        "colours": colours or (_colours_of(n_layers, n_more) if n_layers else group_colours(n_groups or 8)),
        "on_timeline": on_timeline,
        "x_label": x_label,
        "selectable": selectable,
        "height": height,
    }
    return Picture("curves", cue, blob, selected, lambda picked: picked or None, height + 50)


def _colours_of(n_layers: int, n_more: int) -> dict[str, list[str]]:
    """Of layers, then grey: for what stands beside them."""
    return {theme: [*colours, *[LINES[theme][-1]] * n_more] for theme, colours in layer_colours(n_layers).items()}


def pack(
    steps: ArrayLike,
    values: ArrayLike,
    labels: Sequence[str],
    *,
    groups: Sequence[int] | None = None,
    group_names: Sequence[str] | None = None,
    dashes: Sequence[int] | None = None,
    dash_names: Sequence[str] = (),
    band: ArrayLike | None = None,
    log_y: bool = False,
    n_layers: int = 0,
) -> bytes:
    """Lines [line step] over steps; NaN is a step without a measurement, which a straight line bridges.

    The first `n_layers` groups are layers, and have their colours. `dashes`: 0 for a solid line, from 1 ways of
    dashing, which `dash_names` name; without, all are solid. `band` [2 line step] holds both ends of intervals, drawn
    around lines in focus, or around all of few.
    """
    x, y = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if y.shape != (len(labels), x.size):
        raise ValueError(f"values have shape {y.shape}; there are {len(labels)} labels and {x.size} steps")
    if len(set(labels)) != len(labels):
        raise ValueError("curve labels repeat; a click could not tell them apart")
    y = np.where(np.isfinite(y) & ((y > 0) | (not log_y)), y, np.nan)
    ends = np.full((2, *y.shape), np.nan) if band is None else np.asarray(band, np.float64)
    ends = np.where(np.isfinite(ends), ends, np.nan)
    if log_y:
        ends = np.log10(np.maximum(ends, np.nanmin(y, initial=1.0) / 10))
        y = np.log10(y)
    lo, hi = (float(np.nanmin(y)), float(np.nanmax(y))) if np.isfinite(y).any() else (0.0, 1.0)
    hi = hi if hi > lo else lo + (abs(lo) or 1.0) * 1e-3
    header: dict[str, Any] = {
        "labels": list(labels),
        "groups": list(groups) if groups is not None else list(range(len(labels))),
        "group_names": list(group_names or []),
        "dashes": list(dashes or []),
        "dash_names": list(dash_names),
        "log_y": log_y,
        "n_layers": n_layers,
        "lo": lo,
        "hi": hi,
    }
    arrays = {"steps": x, "lines": payload.quantise_linear(y, lo, hi)}
    if np.isfinite(ends).any():
        header["band"] = [float(np.nanmin(ends)), float(np.nanmax(ends))]
        arrays["band"] = payload.quantise_linear(ends, *header["band"])
    return payload.pack(header, **arrays)


def pack_heads(steps: ArrayLike, values: ArrayLike, band: ArrayLike | None = None, **options: Any) -> bytes:
    """pack() of a measure [step layer head]: one line a head, coloured by layer; `band` [2 step layer head]."""
    y = np.asarray(values, np.float64)
    n_steps, n_layers, n_heads = y.shape
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    return pack(
        steps,
        y.reshape(n_steps, -1).T,
        [head_label(layer, head) for layer, head in heads],
        groups=[layer for layer, _ in heads],
        group_names=[f"layer {layer}" for layer in range(n_layers)],
        n_layers=n_layers,
        band=None if band is None else [end.reshape(n_steps, -1).T for end in np.asarray(band, np.float64)],
        **options,
    )
