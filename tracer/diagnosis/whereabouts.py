"""Where a finding of somebody's own may be: at a step that was recorded, in heads that the run has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.measures.aliases import Head

if TYPE_CHECKING:
    import xarray as xr


def placed(step: Any, heads: Any, trace: xr.Dataset) -> tuple[int, tuple[Head, ...]]:
    """The step and the heads, as the trace holds them. ValueError, in words that follow the name of who says so."""
    at = _whole(step)
    recorded = trace["step"].values if "step" in trace.coords else np.array([], int)
    if at is None or not (recorded == at).any():
        last = f"the last recorded is {int(recorded[-1]):,}" if len(recorded) else "none is recorded"
        raise ValueError(f"gave step {step!r:.60}, which the trace does not hold: {last}")
    try:
        pairs = [(_whole(layer), _whole(head)) for layer, head in heads]
    except (TypeError, ValueError) as error:
        raise ValueError(f"gave heads={heads!r:.60}; write them as [(layer, head), ...]") from error
    return at, tuple(_head(layer, head, trace) for layer, head in pairs)


def _whole(value: Any) -> int | None:
    """A whole number, of Python, numpy or xarray; None for anything else."""
    number = np.asarray(value)
    fit = number.shape == () and number.dtype.kind in "iuf" and np.isfinite(number) and number % 1 == 0
    return int(number) if fit else None


def _head(layer: int | None, head: int | None, trace: xr.Dataset) -> Head:
    layers, heads = trace.sizes.get("layer", 0), trace.sizes.get("head", 0)
    if layer is None or head is None or not (0 <= layer < layers and 0 <= head < heads):
        raise ValueError(f"gave head L{layer}H{head}, which the run has not: it has {layers} layers of {heads} heads")
    return layer, head
