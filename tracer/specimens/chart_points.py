"""A paper's chart as plain numbers, which results.json keeps: drawn again from them, no run is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracer.specimens.paper import SeedRuns
from tracer.specimens.paper_chart import PaperChart
from tracer.specimens.paper_errors import points, raised

MOST = 80
"""Points of a curve that are kept: a card is some hundred pixels wide."""


def chart_points(chart: PaperChart, found: Mapping[int, SeedRuns]) -> dict[str, Any] | None:
    """Its words and [x, y] of each curve, no curve and an `error` where its code raised; None without its runs."""
    seed = next((seed for seed, runs in found.items() if all(name in runs for name in chart.needs)), None)
    if seed is None:
        return None
    said = {"text": chart.text, "x": chart.x, "y": chart.y, "log": chart.log, "levels": dict(chart.levels),
            "seed": seed, "curves": {}}  # fmt: skip
    try:
        curves = points(chart.curves, {name: found[seed][name] for name in chart.needs})
    except Exception as error:  # somebody's code, which raises whatever it runs into
        return said | {"error": raised("chart", error)}
    return said | {"curves": {name: _shown(one, chart.log) for name, one in curves.items()}}


def _shown(points: np.ndarray, log: str) -> list[list[float]]:
    """[axis point] of what can be drawn, thinned evenly, both ends included."""
    known = np.isfinite(points).all(0)
    for axis, name in enumerate("xy"):
        known &= (points[axis] > 0) | (name not in log)
    points = points[:, known]
    n = points.shape[1]
    return points[:, np.linspace(0, n - 1, min(n, MOST)).round().astype(int)].tolist()
