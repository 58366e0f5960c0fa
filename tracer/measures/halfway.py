"""When a curve over training is half of the way from its start to its end: one number that claims compare.

1. The date lies on the straight line between two records, and it is the last one: from there on the curve is past half.
   A first crossing would come the earlier, the noisier the curve is, and this one comes the later; so compare curves of
   like noise, within one seed, and over seeds (`tracer.Claim`, order=True).
2. It follows from both ends. A curve that still grows is halfway later if it is cut later, whatever happened to it:
   give `end=`, or cut all curves at one step, and ask again at another.
3. It is no test of whether anything changed. `tracer.measures.change_points.phase_change` is one, with an interval.

Source: ours. Seijo and Sen 2011 on why a change-point cannot be bootstrapped, as the middle of a smooth change can be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def halfway(
    curve: Any, steps: ArrayLike | None = None, *, start: float | None = None, end: float | None = None,
    least: float = 0.0,
) -> float:  # fmt: skip
    """The step from which on a curve is past half of the way from its start to its end, between two records.

        tracer.halfway(run.trace["val_loss"])
        tracer.halfway(run.trace["induction"].max(["layer", "head"]), end=0.5, least=0.1)

    Args:
        curve: A variable of a trace over "step" alone, or numbers.
        steps: Of the records, rising; by default the curve's own coordinate "step".
        start: Level that the way begins at, in the curve's unit; by default its first known value.
        end: Level that it ends at; by default its last known value. One level for all curves that are compared.
        least: The shortest way that is dated, in the curve's unit: more than noise alone moves it.

    Records without a finite value are left out. It is nan where there is no such step: of fewer than two known values,
    of a curve whose way is no longer than `least` (one that never moves has none), where the first known value is past
    half already, since that was before the records, and where the last is not. ValueError where steps do not fit.
    """
    at, values = _records(curve, steps)
    known = np.isfinite(values)
    at, values = at[known], values[known]
    if len(values) < 2:
        return float("nan")
    begun, ended = (float(values[0]) if start is None else start), (float(values[-1]) if end is None else end)
    if not abs(ended - begun) > least:
        return float("nan")
    share = (values - begun) / (ended - begun)
    short = np.flatnonzero(share < 0.5)
    if not len(short) or short[0] != 0 or short[-1] == len(share) - 1:
        return float("nan")
    i = short[-1]
    return float(at[i] + (at[i + 1] - at[i]) * (0.5 - share[i]) / (share[i + 1] - share[i]))


def _records(curve: Any, steps: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    values = np.asarray(curve, float)
    if values.ndim != 1:
        of = ", ".join(map(str, getattr(curve, "dims", values.shape)))
        raise ValueError(f"a curve has one number a record, not [{of}]: take one head, or a mean or maximum over heads")
    if steps is None:
        if "step" not in getattr(curve, "coords", ()):
            raise ValueError("numbers alone do not say when they were recorded: give steps=")
        steps = curve["step"].values
    at = np.asarray(steps, float)
    if at.shape != values.shape:
        raise ValueError(f"{at.size} steps and {values.size} values: each record has one of both")
    if not (np.diff(at) > 0).all():
        raise ValueError("steps must rise from record to record")
    return at, values
