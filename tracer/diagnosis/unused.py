"""Heads that do nothing: dead ones write nothing at all, idle ones write what nothing depends on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tracer.diagnosis.findings import Finding, at_end, finite_rows, heads_of, lasting

if TYPE_CHECKING:
    import xarray as xr

    from tracer.store import Run

WRITES = 0.01
"""Share of what its layer's median head can write, below which a head writes nothing; a hundredth is ours."""
IDLE_LOSS = 1e-3
"""nats: the effect below which a head is called idle."""


def reach(weight_norm: np.ndarray) -> np.ndarray:
    """||W_V|| ||W_O|| of every head over that of its layer's median head, [... layer head].

    At most so much of its input a head can write: ||W_V W_O|| is no larger. Source: ours. W_V alone where there is no
    W_O; nan in a layer whose heads all write nothing, or nothing finite.
    """
    out = np.where(np.isnan(weight_norm[..., 3]), 1.0, weight_norm[..., 3])
    writes = weight_norm[..., 2] * out
    writes = np.where(np.isfinite(writes), writes, np.nan)  # just before a divergence a norm may be infinite
    unknown = np.isnan(writes).all(axis=-1, keepdims=True)
    typical = np.nanmedian(np.where(unknown, 0.0, writes), axis=-1, keepdims=True)
    return np.divide(writes, typical, out=np.full_like(writes, np.nan), where=typical > 0)


def dead(trace: xr.Dataset) -> Iterator[Finding]:
    """Heads whose weights let them write nothing."""
    trace = finite_rows(trace, "head_weight_norm")
    share = reach(trace["head_weight_norm"].values)
    if found := lasting(trace, share < WRITES):
        step, heads = found
        yield Finding(
            "dead", "watch", "Dead heads: they write nothing", step, heads,
            f"W_V and W_O let them write {max(at_end(share, heads)):.2%} or less of what the median head "
            "of their layer can",
            "decay weights less, or train with fewer heads: nothing depends on these",
            "ours: no agreed definition of a dead head was found; ||W_V|| ||W_O|| is the most that a head can write",
        )  # fmt: skip


def swept(run: Run) -> xr.DataArray | None:
    """What switching heads off cost where another sequence's output stood in for theirs; None without such a sweep."""
    try:
        effects = run.effects
    except ValueError:
        return None
    known = "effect" in effects and "resample" in effects["mode"].values
    return effects["effect"].sel(mode="resample") if known else None


def idle(effects: xr.DataArray) -> Iterator[Finding]:
    """Heads that a sweep switched off at no cost."""
    effect = effects.dropna("step", how="all").isel(step=-1)
    size = np.abs(effect.transpose("probe", "layer", "head").values)
    unused = (size < IDLE_LOSS).all(axis=0)  # nan, a head that is not there, is not idle
    heads = heads_of(np.asarray(unused))
    if heads:
        yield Finding(
            "idle", "watch", "Heads that nothing depends on", int(effect["step"]), heads,
            f"{len(heads)} of {int(np.isfinite(size).all(axis=0).sum())} heads change no loss by {IDLE_LOSS} nats when "
            "another sequence's output stands in for theirs",
            "switch them off together before you call them dead: heads that do the same work hide each other",
            "ours: no agreed definition of a dead head was found",
        )  # fmt: skip
