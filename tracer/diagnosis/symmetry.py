"""Heads that cannot become different: those that look at every key alike, and copies of each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.diagnosis.causes import free
from tracer.diagnosis.findings import Advice, Finding, at_end, finite_rows, lasting, values
from tracer.measures import REPEAT_MEASURES

if TYPE_CHECKING:
    import xarray as xr

SPREAD = 0.005
"""Scores that differ by half a percent, in nats, make no choice: no key gets a percent more than another."""
ALIKE = 1e-5
"""What entropy then lacks: SPREAD^2 / 2 nats, to second order; of ln n keys it is less, rounding of float32 is 1e-6."""
EQUAL = 1e-3
"""Relative difference of equal numbers after rounding. Norms of random matrices differ by 1 / sqrt(2 d_model d_head),
0.3 % for 768 x 64, so that eight of them and a head's statistics agree by chance in less than one pair of 10^7."""
SHOWN = 3
"""Records, at least, through which heads are alike."""
STATISTICS = ("entropy_normalised", "max_logit", "previous_token", "current_token", "first_token", "attended_distance")


def uniform(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Heads whose scores do not tell one key from another."""
    trace = finite_rows(trace, "entropy_normalised")
    entropy = trace["entropy_normalised"].values
    found = lasting(trace, free(meta, entropy > 1 - ALIKE), SHOWN)
    if not found:
        return
    step, heads = found
    alive = int(np.isfinite(entropy[-1]).sum())
    weights = values(trace, "head_weight_norm")
    both = weights is not None and all(not weights[-1][head][:2].any() for head in heads)
    yield Finding(
        "uniform", "bad" if len(heads) == alive else "watch", "Attention that does not choose", step, heads,
        f"{len(heads)} of {alive} heads look at every key alike: normalised entropy {min(at_end(entropy, heads)):.6f} "
        f"or more (uniform: 1)" + (", and W_Q and W_K are 0" if both else ""),
        Advice("start W_Q and W_K from random values: while both are 0, the gradient of each is 0, too")
        if both
        else Advice(
            "", ("W_Q or W_K that is 0 or next to it", "a gradient that does not arrive",
            "inputs that are the same at every position"),
            "print the norms of W_Q, W_K, of their gradients, and of the difference between two positions that enter",
        ),
        f"entropy of scores that differ by {SPREAD} nats, to second order; the edge is ours",
    )  # fmt: skip


def twins(measure: np.ndarray) -> np.ndarray:
    """Which heads of a layer agree in all of [... layer head quantity], as [... layer head other]; nan agrees with nan.

    Two numbers agree within EQUAL of the larger; where all are 0, nothing is compared.
    """
    measure = np.where(np.isfinite(measure), measure, np.nan)
    one, other = measure[..., :, None, :], measure[..., None, :, :]
    size = np.maximum(np.abs(one), np.abs(other))
    agree = (np.abs(one - other) <= EQUAL * size) | (np.isnan(one) & np.isnan(other))
    return agree.all(-1) & (size > 0).any(-1) & ~np.eye(measure.shape[-2], dtype=bool)


def clones(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Heads of a layer with equal weights, or, where weights are not known by head, equal statistics."""
    norms = [name for name in ("head_weight_norm", "head_grad_norm") if values(trace, name) is not None]
    for name in ("entropy_normalised", *norms):  # the last record of a watched run has no update
        trace = finite_rows(trace, name)
    entropy = trace["entropy_normalised"].values
    seen = np.stack([trace[name].values for name in STATISTICS], -1)
    alike = twins(seen) & np.isfinite(entropy)[..., None]
    for name in norms:
        alike &= twins(trace[name].values)
    if not norms:  # saturated statistics agree by themselves
        plain = (entropy < 1 - ALIKE) & (entropy > EQUAL)
        alike &= (plain & (seen[..., STATISTICS.index("first_token")] < 1 - EQUAL))[..., None]
    found = lasting(trace, free(meta, np.any(alike, -1)), SHOWN)
    if not found:
        return
    step, heads = found
    what = "weights and gradients of one size in all four matrices, and " if norms else ""
    yield Finding(
        "clones", "watch", "Heads that are copies of each other", step, heads,
        f"{len(heads)} heads have a copy in their layer: {what}the same attention, to {EQUAL:.1%}",
        Advice("start each head from random values of its own: equal heads get equal gradients, and stay equal")
        if norms and step == int(trace["step"].values[0])
        else Advice(
            "", ("heads that started from the same values", "weights that are shared"),
            "compare the weights of two of them at the first step, and whether they are one tensor",
        ),
        "equal weights get equal gradients; the edge is ours",
    )  # fmt: skip


assert not set(STATISTICS) & set(REPEAT_MEASURES)  # those are not known of every model
