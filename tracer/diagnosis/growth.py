"""What goes wrong in a whole model: divergence, a residual stream that exploded, weights that move too fast or not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.diagnosis.causes import bare, growth_advice, is_bias, lasting_causes, smaller_steps, too_large
from tracer.diagnosis.findings import Advice, Finding, finite_rows, number, since, values
from tracer.diagnosis.generalising import GAIN, trained_below
from tracer.measures import UPDATE_BANDS, update_band

if TYPE_CHECKING:
    import xarray as xr

GREW = 100.0
"""The growth from which a value explodes: of the stream over its size at the first record (or over 1, which is what a
norm hands on, if it began smaller), and of a tensor before a loss that is not finite. Ours: activations of a healthy
run stay within a factor of ten or so over a few dozen steps; the demo's stream ends 6 % larger."""
BEFORE = " (weight before the step)"
"""End of the name of a weight that stood there broken: somebody else than the optimiser has changed it."""
RECORDS = 7
"""With an update, from which update ratios are judged."""
CLIPPED = 0.1
"""The clip factor below which clipping takes most of a step."""
ADVICE = {
    "weight": Advice("look at the code that writes to this weight outside of the optimiser: loading, initialising, a "
                     "projection"),
    "loss": Advice("", ("a mean over no target", "a logarithm of 0 or a division by 0 in the loss", "a factor that is "
                        "no number"), "print every part of the loss on the batch of that step"),
    "gradient": Advice("", ("an operation with a finite value and no finite derivative: a square root or a norm at 0, "
                            "a division that torch.where hides", "code that writes to gradients"),
                       "run the backward pass of that step under torch.autograd.detect_anomaly()"),
}  # fmt: skip
"""By what was not finite first in a watched loop, where that says more than that something grew."""
LATELY = 0.25
"""Update ratios are judged by their median over the last quarter of the records, after any warm-up."""


ASLEEP = 2e-5
"""Fine-tuning with Adam at a learning rate of 1e-5 moves weights of 0.1 by 1e-4 of their size and those of 1, as gains,
by 1e-5; a learning rate of 1e-7 stays below. A loss that fell speaks for small steps that were meant, or for a schedule
that is over."""
FELL = 0.005
"""Share of a loss that is a fall."""


def divergence(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """The loss was no number; its first bad tensor, as a replay or the recorder's look found it."""
    found = meta.get("divergence")
    if not found:
        return
    first, before = found.get("non_finite"), found.get("exploding")
    evidence = [_loss(found)]
    if first and found.get("cause") != "unknown":
        detail = f" ({found['detail']})" if found.get("detail") else ""
        evidence.append(
            f"the first value that was not finite: {_place(first)}{detail}{_pass(found)} at step {int(first['step'])}"
        )
    if before:
        evidence.append(
            f"what grew first: {_place(before)} reached {number(before['value'])} at step {int(before['step'])}, more "
            "than a hundred times what it began with"
        )
    if found.get("fused"):
        evidence.append("only in the fused attention kernel: on the explicit path every number was finite")
    heads = tuple(
        (int(at["layer"]), int(at["head"])) for at in (first,) if at and at.get("head") is not None
    )  # fmt: skip
    replayed = "replayed_from" in found
    if replayed and not first:
        evidence.append(
            f"trained again from step {int(found['replayed_from'])} on the same batches, every number was finite"
        )
    if found.get("cause") == "unknown":
        evidence.append("layer unknown")
    if found.get("how"):
        evidence.append(str(found["how"]).rstrip("."))
    if replayed and first and (kept := _healthy(meta, int(first["step"]))) is not None:
        evidence.append(f"the last weights that are kept and were finite are of step {kept:,}")
    source = "a replay from the last resume point, every tap watched" if replayed else "the run's own numbers"
    yield Finding(
        "divergence", "bad", "The run diverged: not finite any more", int(found["step"]), heads, "; ".join(evidence),
        _after_divergence(meta, trace), "one look at the model at that update" if found.get("cause") else source,
    )  # fmt: skip


def _pass(found: dict[str, Any]) -> str:
    """In which part of a step it appeared, of one that was trained again."""
    if "replayed_from" not in found:
        return ""
    where = str(found["non_finite"]["where"])
    if where.endswith(BEFORE):
        return ", which stood there before anything was computed"
    told = {" (gradient)": "backward pass", " (weight)": "optimizer's step"}
    return f", in the {next((part for end, part in told.items() if where.endswith(end)), 'forward pass')}"


def _healthy(meta: dict[str, Any], step: int) -> int | None:
    """The latest step up to this one whose weights are kept; they are those before its update."""
    kept = [one for name in ("snapshot_steps", "state_steps") for one in meta.get(name, ()) if one <= step]
    kept.append(int(meta["divergence"]["replayed_from"]))
    broken = str(meta["divergence"]["non_finite"]["where"]).endswith(BEFORE)  # then those of this step are, too
    return max((one for one in kept if one < step or not broken), default=None)


def _loss(found: dict[str, Any]) -> str:
    """What was not finite at the step of a divergence: its loss, or only the weights after it."""
    step = int(found["step"])
    if found.get("loss") in ("finite", "unknown"):
        loss = "its loss still was" if found["loss"] == "finite" else "its loss is not known"
        return f"the weights were not finite after step {step}; {loss}"
    return f"the loss was not a finite number at step {step}"


def _after_divergence(meta: dict[str, Any], trace: xr.Dataset) -> Advice:
    """A lower learning rate only where steps were seen to be too large."""
    found = meta["divergence"]
    first, before, step = found.get("non_finite"), found.get("exploding"), int(found["step"])
    if "replayed_from" in found and not first:
        return Advice("", (
            "a fault of that moment: hardware, memory, or code that changed a number from outside",
            "an operation whose result differs from run to run, near the limit of its precision",
        ), "train on from the last snapshot (`tracer fork`), on this and on another machine: what passes there was no "
           "property of the model, what comes back at the same step is one of the batch")  # fmt: skip
    cause = "weight" if first and str(first["where"]).endswith(BEFORE) else found.get("cause")
    if cause in ADVICE:
        return ADVICE[cause]
    if advice := too_large(meta, trace, step):
        return advice
    if before or "replayed_from" not in found:
        batch = "a batch of that step that is unlike the others"
        return Advice("", (*lasting_causes(meta), *([] if before else [batch, "an operation that left its range"])), (
            "train on from a snapshot before it with one change each: what stays finite then, was the cause"
            + ("" if before else "; and look at that batch first")
        ))  # fmt: skip
    return Advice("", (
        f"an operation behind {_place(first)} that left its range (a division by 0, a logarithm of 0, low precision)",
        "a weight or a batch that held such a number already",
    ), f"nothing had grown before; print what enters {_place(first)} at step {int(first['step'])}")  # fmt: skip


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
        depth = int(rms[-1].argmax())
        where = f"after block {depth - 1}" if depth else "in front of the first block"
        step = int(trace["step"].values[first])
        yield Finding(
            "residual", "bad" if bare(meta) or meta.get("divergence") else "watch", "The residual stream exploded",
            step, (),
            f"the typical token's root mean square is {number(rms[-1, depth])} {where}, at the first record it was "
            f"{number(start)} at most",
            growth_advice(
                meta, trace, step, "too little decay of what writes to the stream: W_E, W_O and W_out"
            ),
            "a hundredfold, as in the replay of a divergence; the edge is ours",
        )  # fmt: skip


def updates(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Update ratios out of band."""
    ratios = trace["update_ratio"].values
    if np.isfinite(ratios).any(axis=1).sum() < RECORDS:
        return
    lately = ratios[-max(3, round(len(ratios) * LATELY)) :]
    names = trace["param"].values
    with np.errstate(all="ignore"):
        medians = np.array([np.median(c[np.isfinite(c)]) if np.isfinite(c).any() else math.nan for c in lately.T])
    bands = [update_band(float(m)) for m in medians]
    fast = [
        (str(n), m)
        for n, m, band in zip(names, medians, bands, strict=True)
        if band and band.name == "very fast" and not is_bias(str(n))
    ]
    step = int(trace["step"].values[-len(lately)])
    source = "CS231n and Karpathy, nn-zero-to-hero 4: about 1e-3; the edges of the band are ours"
    if fast:
        worst = max(fast, key=lambda pair: pair[1])
        yield Finding(
            "updates", "watch", "A step replaces too much of a weight", step, (),
            f"{len(fast)} of {len(names)} tensors (no bias) change by a tenth of their norm or more each step, most of "
            f"all {worst[0]}: {worst[1]:.2g}",
            smaller_steps(meta, trace, [name for name, _ in fast]), source,
        )  # fmt: skip
    moving = [m for n, m in zip(names, medians, strict=True) if np.isfinite(m) and not is_bias(str(n))]
    still = moving or [m for m in medians if np.isfinite(m)]
    counting = meta.get("references", {}).get("unigram") or math.nan  # watched loops may be fine-tuning: none
    level = (1 - GAIN) * counting
    slow = ASLEEP if math.isnan(level) or trained_below(trace, level) else UPDATE_BANDS[0].high
    if still and max(still) < slow and not falls(trace):
        yield Finding(
            "updates", "watch", "Nothing moves", step, (),
            f"every tensor{' but biases' if moving and max(still) < np.nanmax(medians) else ''} changes by less than "
            f"{slow:.0e} of its norm each step; the fastest by {max(still):.2g}",
            _stuck(trace, float(max(still))), source,
        )  # fmt: skip


def falls(trace: xr.Dataset) -> bool:
    """Did the held-out loss, or where none is known the training loss, fall from its first third to its last?"""
    for name in ("val_loss", "train_loss"):
        if (loss := values(trace, name)) is not None and len(loss := loss[np.isfinite(loss)]) >= 6:
            third = len(loss) // 3
            noise = 0.0 if name == "val_loss" else float(loss.std() / third**0.5)
            fall = float(np.mean(loss[:third]) - np.mean(loss[-third:]))
            return fall > max(FELL * float(np.mean(loss[:third])), noise)
    return False


def _stuck(trace: xr.Dataset, fastest: float) -> Advice:
    """Why nothing moves: from the first record on, or only since then."""
    factor = values(trace, "clip_factor")
    clipped = factor is not None and float(np.nanmedian(factor)) < CLIPPED
    matter = np.array([not is_bias(str(name)) for name in trace["param"].values])
    moved = bool((trace["update_ratio"].values[:, matter] > UPDATE_BANDS[0].high).any())
    if (grads := values(trace, "grad_norm")) is not None and not np.nan_to_num(grads).any():
        return Advice("", ("weights or inputs that are 0, so that every gradient is", "a loss that is cut off from the "
                      "weights"), "print what enters each block, and `p.grad` of each weight")  # fmt: skip
    if fastest and not moved and not clipped:
        return Advice("raise the learning rate: no tensor moved faster at any record, so the run is not done")
    causes = ["a learning rate that is 0, or too low"]
    causes += [] if fastest else ["an optimiser that does not hold these weights, or makes no step"]
    causes += [f"gradients that are clipped to less than {CLIPPED:.0%} of their norm"] if clipped else []
    causes += ["a run that is done, or a schedule that is"] if moved else []
    return Advice("", tuple(causes), (
        "print the learning rate of `optimizer.param_groups` and the norm of the gradients, then train on with ten "
        "times the rate" + (" and without clipping" if clipped else "") + ": if the loss falls, the run was not done"
    ))  # fmt: skip
