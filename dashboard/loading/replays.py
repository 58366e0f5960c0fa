"""Stretches of a run that were trained again with more steps recorded, equal to the bit: its curves, finer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard import loading
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr


def of(run: Run) -> list[Run]:
    """Those runs, the earliest stretch first."""
    found = []
    for other in loading.runs():
        facts = other.meta.get("replay") or {}
        same = facts.get("run") == run.name and facts.get("created") == run.meta.get("created")
        held = facts.get("compared") or facts.get("losses")
        equal = facts.get("parts") is None and facts.get("losses_part") is None
        if same and held and equal and not other.live:
            found.append(other)
    return sorted(found, key=lambda one: one.meta["replay"]["first"])


def traces(run: Run) -> list[xr.Dataset]:
    """What they recorded; one that cannot be read says so where it is opened."""
    found = []
    for one in of(run):
        try:
            found.append(loading.trace(one))
        except ValueError:
            continue
    return found


def merged(trace: xr.Dataset, finer: list[xr.Dataset]) -> xr.Dataset:
    """The numbers of a trace that are one a step, with those of the same training between; its own stand first."""
    import xarray as xr

    names = [name for name, values in trace.data_vars.items() if values.dims == ("step",)]
    parts = [part[[name for name in names if name in part]].reset_coords(drop=True) for part in (trace, *finer)]
    return xr.concat(parts, "step", join="outer").drop_duplicates("step").sortby("step")


def said(run: Run) -> str:
    """Where the curves are finer than the run's own records, in a sentence; empty where nowhere."""
    facts = [one.meta["replay"] for one in of(run)]
    if not facts:
        return ""
    parts = [f"{one['first']:,} to {one['last']:,}" for one in facts]
    return f"Steps {', '.join(parts)}: trained again and recorded closer, equal to the bit."
