"""The timeline of a run: play or drag through its snapshots on the reader's own prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dashboard import parts
from dashboard.loading.looking import Head, Sight
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr


def draw_scrubber(
    run: Run, trace: xr.Dataset, steps: list[int], see: Callable[[int], Sight], focus: Head, measure: str
) -> None:  # fmt: skip
    """Snapshots at `steps`, of which `see` gives every head on the prompt."""
    parts.choose_step(run, steps)
