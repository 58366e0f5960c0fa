"""Curves of a model over several seeds: their mean, and how far the seeds are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr

LOWEST, HIGHEST = "_lowest", "_highest"
"""What is behind the name of a measure whose least and largest value over seeds this is."""
SEEDS = "seeds"
"""The attribute of a mean that says of how many."""
FEWEST = 3
"""Seeds below which a mean says less than the curves themselves."""


def mean_over_seeds(traces: Sequence[xr.Dataset], names: Sequence[str]) -> xr.Dataset:
    """The mean [step] of these variables over traces, with their `LOWEST` and `HIGHEST`, at the steps that all have.

    NaN where a trace has no number. No interval: while a head forms, which happens at another step for each seed,
    values are at one of two ends, and those of few seeds as normal values would reach below a loss of 0. ValueError for
    fewer than `FEWEST` traces.
    """
    import xarray as xr

    if len(traces) < FEWEST:
        raise ValueError(f"a mean over seeds is of at least {FEWEST} runs, not of {len(traces)}")
    held = [name for name in names if all(name in trace for trace in traces)]
    bare = [trace[held].drop_vars(set(trace.coords) - {"step"}, errors="ignore") for trace in traces]
    stacked = xr.concat(bare, dim="seed", join="inner")
    ends = {LOWEST: stacked.min("seed", skipna=False), HIGHEST: stacked.max("seed", skipna=False)}
    named = [values.rename({name: name + end for name in held}) for end, values in ends.items()]
    return xr.merge([stacked.mean("seed", skipna=False), *named]).assign_attrs({SEEDS: len(traces)})
