"""What goes wrong in a whole model: divergence, a residual stream that exploded, weights that move too fast or not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.diagnosis.findings import Finding, finite_rows, number, since
from tracer.measures import update_band

if TYPE_CHECKING:
    import xarray as xr

GREW = 100.0
"""The stream's size over that at the first record (or over 1, which is what a norm hands on, if it began smaller): the
growth at which the replay of a divergence calls a value exploding (`tracer.training.divergence.GROWTH`). The demo's
grows by a third, the toy's fivefold."""
LATELY = 0.25
"""Update ratios are judged by their median over the last quarter of the records, after any warm-up."""


def divergence(meta: dict[str, Any]) -> Iterator[Finding]:
    """The loss was no number; its first bad tensor, as the replay of the run found it."""
    found = meta.get("divergence")
    if not found:
        return
    first, before = found.get("non_finite"), found.get("exploding")
    evidence = [f"the loss was not a finite number at step {int(found['step'])}"]
    if first:
        evidence.append(f"the first value that was not finite: {_place(first)} at step {int(first['step'])}")
    if before:
        evidence.append(
            f"what grew first: {_place(before)} reached {number(before['value'])} at step {int(before['step'])}, more "
            "than a hundred times what it began with"
        )
    heads = tuple(
        (int(at["layer"]), int(at["head"])) for at in (first,) if at and at.get("head") is not None
    )  # fmt: skip
    lacks = ["clip gradients"] if meta.get("config", {}).get("optim", {}).get("clip") is None else []
    lacks += ["put a norm in front of every sublayer"] if _without_norm(meta) else []
    yield Finding(
        "divergence", "bad", "The run diverged", int(found["step"]), heads, "; ".join(evidence),
        ", or ".join([*lacks, "lower the learning rate"]), "a replay from the last resume point, every tap watched",
    )  # fmt: skip


def _without_norm(meta: dict[str, Any]) -> bool:
    return meta.get("config", {}).get("model", {}).get("norm") == "none"


def _place(found: dict[str, Any]) -> str:
    if found.get("layer") is None:
        return str(found["where"])
    where = f"layer {int(found['layer'])}" if found.get("head") is None else f"L{found['layer']}H{found['head']}"
    return f"{found['where']} in {where}"


def residual(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A residual stream that grew a hundredfold; behind norms the loss does not show it, so there it is to watch."""
    trace = finite_rows(trace, "resid_rms")
    rms = np.nan_to_num(trace["resid_rms"].values, nan=math.inf)
    start = float(rms[0].max())
    first = since(rms.max(axis=1) > GREW * max(start, 1.0))
    if first < len(rms):
        depth, bare = int(rms[-1].argmax()), _without_norm(meta)
        where = f"after block {depth - 1}" if depth else "in front of the first block"
        yield Finding(
            "residual", "bad" if bare or meta.get("divergence") else "watch", "The residual stream exploded",
            int(trace["step"].values[first]), (),
            f"the typical token's root mean square is {number(rms[-1, depth])} {where}, at the first record it was "
            f"{number(start)} at most",
            ("put a norm in front of every sublayer, or " if bare else "") + "lower the learning rate, or decay the "
            "weights that write to the stream: W_E, W_O and W_out",
            "a hundredfold, as in the replay of a divergence; the edge is ours",
        )  # fmt: skip


def updates(trace: xr.Dataset) -> Iterator[Finding]:
    """Update ratios out of band."""
    ratios = trace["update_ratio"].values
    if len(ratios) < 8:
        return
    lately = ratios[-max(3, round(len(ratios) * LATELY)) :]
    names = trace["param"].values
    with np.errstate(all="ignore"):
        medians = np.array([np.median(c[np.isfinite(c)]) if np.isfinite(c).any() else math.nan for c in lately.T])
    bands = [update_band(float(m)) for m in medians]
    fast = [(str(n), m) for n, m, band in zip(names, medians, bands, strict=True) if band and band.name == "very fast"]
    step = int(trace["step"].values[-len(lately)])
    source = "CS231n and Karpathy, nn-zero-to-hero 4: about 1e-3; the edges of the band are ours"
    if fast:
        worst = max(fast, key=lambda pair: pair[1])
        yield Finding(
            "updates", "watch", "A step replaces too much of a weight", step, (),
            f"{len(fast)} of {len(names)} tensors change by a tenth of their norm or more each step, most of all "
            f"{worst[0]}: {worst[1]:.2g}",
            "lower the learning rate of these tensors", source,
        )  # fmt: skip
    known = [band for band in bands if band]
    if known and all(band.name == "slow" for band in known):
        yield Finding(
            "updates", "watch", "Nothing moves", step, (),
            f"every tensor changes by less than 1e-4 of its norm each step; the fastest by {np.nanmax(medians):.2g}",
            "raise the learning rate, unless the run is done", source,
        )  # fmt: skip
