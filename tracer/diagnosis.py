"""What went wrong in a run, and where: findings with their evidence, the step, and the usual remedy.

1. Divergence, with its first bad tensor, as the replay of the run found it.
2. A one-hot pattern out of reach of its gradient: scores beyond what float32 tells apart, or a loss that no longer
   answers to W_Q and W_K while the head does no job that has a name.
3. A head that only copies its own token, where no residual connection carries it past the head.
4. Entropy collapse: entropy that fell while the loss got worse.
5. Attention scores that outgrew the softmax.
6. Update ratios out of band.
7. Idle heads, where a sweep measured what switching them off costs.

A sharp head is healthy: previous-token and induction heads look at one key. So no finding rests on entropy alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tracer.measures import update_band

if TYPE_CHECKING:
    import xarray as xr

    from tracer.store import Run

Head = tuple[int, int]
Severity = Literal["bad", "watch"]
Kind = Literal["divergence", "one-hot", "stands-in", "collapse", "scores", "updates", "idle"]

ONE_HOT = 0.02
"""Normalised entropy of a row that is one key to two digits; healthy sharp heads of the demo end at 0.08 to 0.16."""
STOPPED = 0.01
"""The gradient into W_Q and W_K is a hundredth of that into W_V and W_O, each times its weight's norm: the loss answers
a hundred times less to where the head looks than to what it passes on."""
JOBS = ("previous_token", "current_token", "first_token", "duplicate_token", "induction")
"""Kinds of keys that a healthy sharp head looks at."""
JOB = 0.9
"""Share of its attention on such keys from which a head does little else."""
FALL = 1 / 3
"""Entropy below a third of its highest value has fallen."""
SPREADS = 3.0
"""A loss is worse when it stands above its best by three times the spread of the last tenth of its records."""
FLOAT32_RANGE = 88.0
"""-ln of the smallest normal float32: keys whose score is further below the largest get exactly no attention."""
LATELY = 0.25
"""Update ratios are judged by their median over the last quarter of the records, after any warm-up."""
IDLE_LOSS = 1e-3
"""nats: the effect below which a head is called idle."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or may be."""

    kind: Kind
    severity: Severity
    title: str
    step: int
    """The first recorded step at which it held and after which it held to the end."""
    heads: tuple[Head, ...]
    """The heads it is about; empty when it is about the whole model."""
    evidence: str
    remedy: str
    source: str


def diagnose(run: Run) -> list[Finding]:
    """Every finding of a run, the worst first; [] for a run in which nothing is known to be wrong.

    Source: ours, each finding names where its threshold is from. Reads the trace and the sweep, never the model.
    """
    found = list(_divergence(run.meta))
    try:
        trace = run.trace.drop_vars("pattern", errors="ignore").load()
    except ValueError:
        return found
    if trace.sizes["step"]:
        found += [*_one_hot(trace), *_stands_in(run, trace), *_collapse(trace), *_scores(trace), *_updates(trace)]
        found += list(_idle(run))
    return sorted(found, key=lambda finding: (finding.kind != "divergence", finding.severity != "bad", finding.step))


def _divergence(meta: dict[str, Any]) -> Iterator[Finding]:
    found = meta.get("divergence")
    if not found:
        return
    first, before = found.get("non_finite"), found.get("exploding")
    evidence = [f"the loss was not a finite number at step {int(found['step'])}"]
    if first:
        evidence.append(f"the first value that was not finite: {_place(first)} at step {int(first['step'])}")
    if before:
        evidence.append(
            f"what grew first: {_place(before)} reached {before['value']:.3g} at step {int(before['step'])}, more than "
            "a hundred times what it began with"
        )
    heads = tuple(
        (int(at["layer"]), int(at["head"])) for at in (first,) if at and at.get("head") is not None
    )  # fmt: skip
    config = meta.get("config", {})
    lacks = ["clip gradients"] if config.get("optim", {}).get("clip") is None else []
    lacks += ["put a norm in front of every sublayer"] if config.get("model", {}).get("norm") == "none" else []
    yield Finding(
        "divergence", "bad", "The run diverged", int(found["step"]), heads, "; ".join(evidence),
        ", or ".join([*lacks, "lower the learning rate"]), "a replay from the last resume point, every tap watched",
    )  # fmt: skip


def _place(found: dict[str, Any]) -> str:
    if found.get("layer") is None:
        return str(found["where"])
    where = f"layer {int(found['layer'])}" if found.get("head") is None else f"L{found['layer']}H{found['head']}"
    return f"{found['where']} in {where}"


def _values(trace: xr.Dataset, name: str) -> np.ndarray | None:
    """A variable as numpy, None where the run has not measured it."""
    return trace[name].values if name in trace and np.isfinite(trace[name].values).any() else None


def since(holds: np.ndarray) -> np.ndarray:
    """The first row from which a condition [step ...] holds until the last; the number of rows where it does not."""
    return len(holds) - np.cumprod(holds[::-1], axis=0).sum(axis=0)


def pull(grad_norm: np.ndarray, weight_norm: np.ndarray) -> np.ndarray:
    """How much the loss answers to where a head looks, over how much to what it passes on, [... layer head].

    sqrt(sum of (g w)^2 of W_Q and W_K) / the same of W_V and W_O. g w bounds the change of the loss when a matrix
    changes by its own size, so no scale of the weights is in it. Source: ours; behind a one-hot row the Jacobian of
    softmax, diag(p) - p p^T, is 0, so it goes to 0. nan where nothing is passed on.
    """
    parts = np.nan_to_num(grad_norm * weight_norm)  # a model without W_O has nan there
    looks, passes = np.hypot(parts[..., 0], parts[..., 1]), np.hypot(parts[..., 2], parts[..., 3])
    return np.divide(looks, passes, out=np.full_like(looks, math.nan), where=passes > 0)


def _heads(mask: np.ndarray) -> tuple[Head, ...]:
    return tuple((int(layer), int(head)) for layer, head in np.argwhere(mask))


def _step(trace: xr.Dataset, first: np.ndarray) -> int:
    """The step at which the first head got there; `first` holds rows, one past the last where a head never did."""
    return int(trace["step"].values[int(first.min())])


def _finite_rows(trace: xr.Dataset, name: str) -> xr.Dataset:
    """The rows in which some head has a value: a diverged run ends in nan."""
    known = np.isfinite(trace[name].values).any(axis=(1, 2))
    return trace.isel(step=known)


def _one_hot(trace: xr.Dataset) -> Iterator[Finding]:
    needed = ("entropy_normalised", "max_logit", "head_grad_norm", "head_weight_norm")
    if any(_values(trace, name) is None for name in needed):
        return
    trace = _finite_rows(trace, "entropy_normalised")
    entropy, logits = trace["entropy_normalised"].values, trace["max_logit"].values
    answers = pull(trace["head_grad_norm"].values, trace["head_weight_norm"].values)
    jobs = [trace[name].values for name in JOBS if _values(trace, name) is not None]
    named = np.max([np.zeros_like(entropy), *jobs], axis=0) > JOB
    stuck = (logits > FLOAT32_RANGE) | (answers < STOPPED) & ~named
    first = since(np.asarray((entropy < ONE_HOT) & stuck))
    heads = _heads(first < len(entropy))
    if heads:
        lowest, score = (f(float(rows[-1][h]) for h in heads) for f, rows in ((min, entropy), (max, logits)))
        yield Finding(
            "one-hot", "bad", "Attention is one-hot and out of reach", _step(trace, first), heads,
            f"normalised entropy down to {lowest:.2g} (one key: 0) with scores up to {score:,.0f}",
            "divide the scores by sqrt(d_head), start W_Q and W_K smaller, or normalise q and k",
            f"at a one-hot row the Jacobian of softmax, diag(p) - p p^T, is 0; scores: {FLOAT32_RANGE:.0f} below the "
            "largest a key gets exactly no attention in float32; the thresholds are ours",
        )  # fmt: skip


def _stands_in(run: Run, trace: xr.Dataset) -> Iterator[Finding]:
    """Source: ours, found on the specimen `single-head-scaled`: what its heads do once their entropy is gone."""
    model = run.meta.get("config", {}).get("model", {})
    if model.get("residual", True) or _values(trace, "current_token") is None:
        return
    trace = _finite_rows(trace, "current_token")
    share = trace["current_token"].values
    first = since(share > JOB)
    heads = _heads(first < len(share))
    if heads:
        yield Finding(
            "stands-in", "watch", "Attention carries what a residual connection would", _step(trace, first), heads,
            f"{min(float(share[-1][h]) for h in heads):.1%} of the attention is on the token itself: without a "
            "residual connection the model sees its input through attention only",
            "add the residual connection: x + Attn(x)", "ours",
        )  # fmt: skip


def _collapse(trace: xr.Dataset) -> Iterator[Finding]:
    entropy, loss = _values(trace, "entropy_normalised"), _values(trace, "val_loss")
    if entropy is None or loss is None:
        return
    known = np.isfinite(loss)
    loss, steps, entropy = loss[known], trace["step"].values[known], entropy[known]
    last = max(3, round(len(loss) * 0.1))
    if len(loss) < 3 * last:
        return
    worse = float(np.median(loss[-last:]) - loss.min())
    if worse < SPREADS * float(np.ptp(loss[-last:])) or worse <= 0:
        return
    peak = np.maximum.accumulate(entropy, axis=0)
    first = since(entropy < FALL * peak)
    heads = _heads(first < len(entropy))
    if heads:
        step = int(steps[int(first.min())])
        yield Finding(
            "collapse", "bad", "Entropy collapsed, and the loss with it", step, heads,
            f"normalised entropy below a third of its peak from step {step:,} on; the held-out loss ends "
            f"{worse:.3f} nats above its best",
            "lower the learning rate or warm up longer, normalise q and k, or reparametrise W_Q and W_K by their "
            "spectral norm",
            "Zhai et al. 2023 call low entropy with unstable training entropy collapse; the thresholds are ours",
        )  # fmt: skip


def _scores(trace: xr.Dataset) -> Iterator[Finding]:
    logits = _values(trace, "max_logit")
    if logits is None:
        return
    trace = _finite_rows(trace, "max_logit")
    logits = trace["max_logit"].values
    first = since(logits > FLOAT32_RANGE)
    heads = _heads(first < len(logits))
    if heads:
        yield Finding(
            "scores", "watch", "Attention scores outgrew the softmax", _step(trace, first), heads,
            f"the largest score is {float(np.nanmax(logits[-1])):,.0f}; {FLOAT32_RANGE:.0f} below the largest, a key "
            "gets exactly no attention in float32",
            "normalise q and k, or decay W_Q and W_K",
            "Dehghani et al. 2023; Wortsman et al. 2023; the threshold is -ln of the smallest normal float32",
        )  # fmt: skip


def _updates(trace: xr.Dataset) -> Iterator[Finding]:
    ratios = _values(trace, "update_ratio")
    if ratios is None or trace.sizes["step"] < 8:
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


def _idle(run: Run) -> Iterator[Finding]:
    try:
        effects = run.effects
    except ValueError:
        return
    if "effect" not in effects or "resample" not in effects["mode"].values:
        return
    effect = effects["effect"].sel(mode="resample").dropna("step", how="all").isel(step=-1)
    size = np.abs(effect.transpose("probe", "layer", "head").values)
    idle = (size < IDLE_LOSS).all(axis=0)  # nan, a head that is not there, is not idle
    heads = _heads(np.asarray(idle))
    if heads:
        yield Finding(
            "idle", "watch", "Heads that nothing depends on", int(effect["step"]), heads,
            f"{len(heads)} of {int(np.isfinite(size).all(axis=0).sum())} heads change no loss by {IDLE_LOSS} nats when "
            "another sequence's output stands in for theirs",
            "switch them off together before you call them dead: heads that do the same work hide each other",
            "ours: no agreed definition of a dead head was found",
        )  # fmt: skip
