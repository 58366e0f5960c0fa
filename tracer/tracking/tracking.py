"""A run's line to one or more trackers."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zlib import crc32

import numpy as np

from tracer.diagnosis.findings import Finding
from tracer.store.choosing import flat
from tracer.tracking import services
from tracer.tracking.grids import grid
from tracer.tracking.scalars import Readable

TRACKERS: dict[str, Callable[..., services.Service]] = {
    "wandb": services.WandB, "tensorboard": services.TensorBoard, "mlflow": services.MLflow,
    "trackio": services.Trackio,
}  # fmt: skip
PACKAGES = {"mlflow": "mlflow-skinny"}
"""What pip calls them, where that is not their name."""
BETWEEN = {"tracer", "torch", "contextlib"}
"""Whose code runs between a line of somebody's loop and a warning about it."""
PICTURED = {"induction": 1.0, "entropy": None}
"""Measures of which a picture of all heads is sent, and the end of their range; None: the highest in the picture."""
RARER = 1.25
"""A picture is sent when this many times as many steps are done as at the last one: 31 over 1,000 steps."""


class Tracking:
    """Tells trackers what a run records. Nothing in here raises once it is made.

        tracking = Tracking("wandb", run.dir, run.meta)
        tracking.record(step, row)      # a row of the trace, as the recorders make it
        tracking.alert(finding)         # each kind of finding once
        tracking.close()

    Args:
        to: One or more of `TRACKERS`.
        directory: The run's; its name is the run's name at the tracker.
        meta: What run.json says. A run that is resumed goes on at the tracker, too, where that can.
        project: The tracker's group of runs.
        link: Where a dashboard shows runs.

    ValueError for a tracker that is not known, not installed, or does not let us in.
    """

    def __init__(
        self, to: str | Sequence[str], directory: str | Path, meta: Mapping[str, Any], *, project: str = "manyeyes",
        link: str = "http://localhost:8501",
    ) -> None:  # fmt: skip
        name, names = Path(directory).resolve().name, (to,) if isinstance(to, str) else tuple(to)
        check(names)
        key = format(crc32(f"{Path(directory).resolve()} {meta.get('created')}".encode()), "08x")
        page = f"{link}/training?run={quote(name)}"
        config: dict[str, Any] = {"link": page, "run": name}
        for setting, value in flat(meta.get("config") or meta.get("built_with") or {}).items():
            config[setting] = value if isinstance(value, str | int | float) else json.dumps(value)
        self._services: dict[str, services.Service] = {}
        for one in names:
            try:
                self._services[one] = TRACKERS[one](Path(directory), name, key, project, config)
            except Exception as error:
                self.close()
                raise ValueError(f"{one} cannot be started: {type(error).__name__}: {error}") from error
        self._readable, self._told, self._pictured = Readable(), set[str](), -1.0

    def record(self, step: int, row: Mapping[str, Any]) -> None:
        """A row of the trace: curves, and now and then a picture of all heads [layer head]."""
        values, images = self._readable(row), {}
        if step >= self._pictured * RARER:
            self._pictured = max(step, 1)
            scores = {name: np.asarray(row.get(name, np.nan), np.float64) for name in PICTURED}
            images = {
                f"attn/grid/{name}": grid(x, PICTURED[name]) for name, x in scores.items() if not np.isnan(x).all()
            }
        self._tell(lambda service: service.log(step, values, images))

    def alert(self, finding: Finding) -> None:
        """What is wrong with the run, or may be; each kind is told once."""
        if finding.kind in self._told:
            return
        self._told.add(finding.kind)
        text = "\n\n".join(
            [finding.evidence, *(f"{k}: {v}" for k, v in finding.advice.texts().items()), finding.source]
        )
        self._tell(lambda service: service.alert(finding.kind, finding.severity, finding.title, text, finding.step))

    def close(self, failed: bool = False) -> None:
        """Let go of the trackers; `failed`: the training ended with an error or diverged."""
        self._tell(lambda service: service.close(failed))
        self._services = {}

    def _tell(self, what: Callable[[services.Service], None]) -> None:
        for name, service in list(self._services.items()):
            try:
                what(service)
            except Exception as error:
                del self._services[name]
                say(f"manyeyes tells {name} nothing more, training goes on: {type(error).__name__}: {error}")


def check(names: Sequence[str]) -> None:
    """A ValueError for a tracker that is not known or not installed, before anything has begun."""
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"track={name!r} is not one of {', '.join(TRACKERS)}")
        if find_spec(name) is None:
            raise ValueError(f"{name} is not installed: `pip install {PACKAGES.get(name, name)}`")


def say(text: str) -> None:
    """A warning at the line of somebody's code that led here, even where warnings are errors: nothing that records may
    end somebody's training."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        frame, level = frame.f_back, level + 1
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=level)
    except RuntimeWarning:
        sys.stderr.write(f"{text}\n")
