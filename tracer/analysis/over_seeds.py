"""Curves of a model over several seeds: their mean, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracer.analysis.training_curves import NORMAL
from tracer.measures import SE

if TYPE_CHECKING:
    import xarray as xr

SEEDS = "seeds"
"""The attribute of a mean that says of how many."""
FEWEST = 3
"""Seeds below which a mean says less than the curves themselves."""


def mean_over_seeds(traces: Sequence[xr.Dataset], names: Sequence[str]) -> xr.Dataset:
    """The mean [step] of these variables over traces, at the steps that all have.

    Beside each, under its name with `SE`, half of the 95 % interval of that mean over seeds (Student's t with one
    degree of freedom less than there are traces) divided by `NORMAL`, as every other standard error is drawn. NaN where
    a trace has no number. ValueError for fewer than `FEWEST` traces, which tell no spread.
    """
    import xarray as xr

    from tracer.ablate.estimates import student  # brings torch: not before there are seeds

    if len(traces) < FEWEST:
        raise ValueError(f"a mean over seeds is of at least {FEWEST} runs, not of {len(traces)}")
    held = [name for name in names if all(name in trace for trace in traces)]
    stacked = xr.concat([trace[held].drop_vars(set(trace.coords) - {"step"}, errors="ignore") for trace in traces],
                        dim="seed", join="inner")  # fmt: skip
    half = student(len(traces) - 1) / len(traces) ** 0.5 / NORMAL
    error = stacked.std("seed", ddof=1, skipna=False) * half
    mean = stacked.mean("seed", skipna=False).merge(error.rename({name: name + SE for name in held}))
    return mean.assign_attrs({SEEDS: len(traces)})
