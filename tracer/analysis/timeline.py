"""What a training did, and when, in a few words: the marks on its timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.analysis.training_curves import course, events
from tracer.pictures.scrubber import Event

if TYPE_CHECKING:
    import xarray as xr


def events_of(trace: xr.Dataset) -> list[Event]:
    """Every change that Phases dates from the trace alone, in order."""
    return [
        Event(curve.change.midpoint, curve.change.low, curve.change.high, curve.happens)
        for curve in events(course(trace)) if curve.change
    ]  # fmt: skip
