"""What goes wrong in the attention of a head: one-hot rows, gradients that vanish behind them, collapse, scores.

A sharp head is healthy: previous-token and induction heads look at one key. So no finding rests on its
entropy alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.diagnosis.causes import growth_advice, normalises, score_advice, setting
from tracer.diagnosis.findings import Advice, Finding, at_end, finite_rows, lasting, number, since, values
from tracer.measures.aliases import Head

if TYPE_CHECKING:
    import xarray as xr

ONE_HOT = 0.02
"""Normalised entropy of a row that is one key to two digits; healthy sharp heads of the demo end at 0.19 and 0.41."""
STOPPED = 0.01
"""The gradient into W_Q and W_K is a hundredth of that into W_V and W_O, each times its weight's norm: the loss answers
a hundred times less to where the head looks than to what it passes on."""
BATCHES = 9
"""Records whose median is taken: one batch in which two keys tie lets a large gradient through, and says little."""
JOBS = ("previous_token", "fixed_distance", "current_token", "first_token", "duplicate_token", "induction")
"""Kinds of keys that a healthy sharp head looks at."""
JOB = 0.9
"""Share of its attention on such keys from which a head does little else."""
REASONS = ("previous_token", "fixed_distance", "duplicate_token", "induction")
"""Those among them for which a head has to be sharp: its own and the first token are what is left when all else is."""
TEN = 10.0
"""A mean entropy that fell to a tenth of what it was, and to one key."""
FALL = 1 / 3
"""Entropy below a third of its highest value has fallen."""
CHANGES = 3.0
"""A loss is worse when all of its last tenth stands above its best by three times its usual change between records."""
FLOAT32_RANGE = 88.0
"""-ln of the smallest normal float32 (87.3): keys whose score is further below the largest get no attention at all."""
ENTROPY = ("entropy_normalised",)
NEEDS_PULL = (*ENTROPY, "max_logit", "head_grad_norm", "head_weight_norm")
JACOBIAN = "at a one-hot row the Jacobian of softmax, diag(p) - p p^T, is 0"


def pull(grad_norm: np.ndarray, weight_norm: np.ndarray) -> np.ndarray:
    """How much the loss answers to where a head looks, over how much to what it passes on, [... layer head].

    sqrt(sum of (g w)^2 of W_Q and W_K) / the same of W_V and W_O. g w bounds the change of the loss when a matrix
    changes by its own size, so no scale of the weights is in it. Source: ours; behind a one-hot row the Jacobian of
    softmax, diag(p) - p p^T, is 0, so it goes to 0. nan where nothing is passed on.
    """
    parts = grad_norm.astype(float) * weight_norm
    parts = np.where(np.isnan(parts), 0.0, parts)  # a model without W_O has nan there
    looks, passes = np.hypot(parts[..., 0], parts[..., 1]), np.hypot(parts[..., 2], parts[..., 3])
    usable = (passes > 0) & np.isfinite(passes)  # just before a divergence a norm may be infinite
    return np.divide(looks, passes, out=np.full_like(looks, math.nan), where=usable)


def typical(rows: np.ndarray) -> np.ndarray:
    """The median of each row and the BATCHES - 1 rows before it; inf where there are fewer."""
    found = np.full(rows.shape, math.inf)
    if len(rows) >= BATCHES:
        windows = np.lib.stride_tricks.sliding_window_view(rows, BATCHES, axis=0)
        found[BATCHES - 1 :] = np.median(windows, axis=-1)
    return found


def one_hot(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Rows of one key, with scores so far apart that the other keys are exactly 0."""
    trace = finite_rows(trace, "entropy_normalised")
    entropy, logits = trace["entropy_normalised"].values, trace["max_logit"].values
    if found := lasting(trace, (entropy < ONE_HOT) & (logits > FLOAT32_RANGE)):
        step, heads = found
        yield Finding(
            "one-hot", "bad", "Each token's attention is stuck on one key", step, heads,
            f"normalised entropy down to {min(at_end(entropy, heads)):.2g} (one key: 0) with scores up to "
            f"{max(at_end(logits, heads)):,.0f}",
            score_advice(meta, trace, step),
            f"{JACOBIAN}; scores: {FLOAT32_RANGE:.0f} below the largest a key gets exactly no attention in float32; "
            f"the edge at {ONE_HOT} is ours",
        )  # fmt: skip


def vanishing(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Rows of one key behind which W_Q and W_K get next to no gradient, in a head that may not stay as it is."""
    trace = finite_rows(trace, "entropy_normalised")
    entropy, logits = trace["entropy_normalised"].values, trace["max_logit"].values
    answers = typical(pull(trace["head_grad_norm"].values, trace["head_weight_norm"].values))
    jobs = [trace[name].values for name in JOBS if values(trace, name) is not None]
    settled = (np.max([np.zeros_like(entropy), *jobs], axis=0) > JOB) & (logits <= FLOAT32_RANGE)
    if found := lasting(trace, (entropy < ONE_HOT) & (answers < STOPPED) & ~settled):
        step, heads = found
        yield Finding(
            "vanishing", "bad", "No gradient reaches W_Q and W_K", step, heads,
            f"behind one-hot rows the loss answers {_times(min(at_end(answers, heads)))} to W_Q and W_K than to W_V "
            f"and W_O on the usual batch (median of {BATCHES} records): where the head looks is hardly learned any "
            "more",
            score_advice(meta, trace, int(trace["step"].values[_row(entropy < ONE_HOT, heads)])),
            f"{JACOBIAN}, so no gradient passes unless two keys tie; the edges, a hundredth and normalised entropy "
            f"{ONE_HOT}, are ours",
        )  # fmt: skip


def _row(holds: np.ndarray, heads: tuple[Head, ...]) -> int:
    """The first row from which a condition [step layer head] holds to the end in one of these heads."""
    return min(int(since(holds)[head]) for head in heads)


def _times(ratio: float) -> str:
    return f"{1 / ratio:,.0f} times less" if ratio > 0 else "not at all, far less"


def stands_in(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A head that only copies its own token, where no residual connection carries it past the head.

    Source: ours, found on the specimen `single-head-scaled`: what its heads do once their entropy is gone.
    """
    if meta.get("config", {}).get("model", {}).get("residual", True):
        return
    trace = finite_rows(trace, "current_token")
    share = trace["current_token"].values
    if found := lasting(trace, share > JOB):
        step, heads = found
        yield Finding(
            "stands-in", "watch", "Attention carries what a residual connection would", step, heads,
            f"{min(at_end(share, heads)):.1%} of the attention is on the token itself: without a "
            "residual connection the model sees its input through attention only",
            Advice("add the residual connection: x + Attn(x)"), "ours",
        )  # fmt: skip


def collapse(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Entropy that fell while the loss got worse; or that of nearly all heads of a model at once, whatever the loss.

    The loss is the held-out one, or where none is known that of training.
    """
    trace = finite_rows(trace, "entropy_normalised")
    entropy, worse = trace["entropy_normalised"].values, _worse(trace)
    found = lasting(trace, entropy < FALL * np.maximum.accumulate(entropy, axis=0)) if worse else None
    title = "Entropy collapsed, and the loss with it"
    told = "" if found is None else (
        f"normalised entropy below a third of its peak from step {found[0]:,} on; the "
        f"{'training' if values(trace, 'val_loss') is None else 'held-out'} loss ends at least {number(worse)} nats "
        "above its best"
    )  # fmt: skip
    if found is None and (found := _all_at_once(trace)):
        title = "Entropy of the whole model collapsed"
        told = (
            f"the mean over heads of normalised entropy fell from {number(float(np.nanmean(entropy[0])))} to "
            f"{number(float(np.nanmean(entropy[-1])))} (one key: 0), and stays there from step {found[0]:,} on"
        )
    if found:
        step, heads = found
        yield Finding(
            "collapse", "bad", title, step, heads, told,
            growth_advice(
                meta, trace, step,
                *([] if normalises(trace) or setting(meta, "optim", "reparam") == "sigma"
                  else ["q and k, or W_Q and W_K, that nothing normalises"]),
            ),
            "Zhai et al. 2023 call low entropy with unstable training entropy collapse, and give no number; the edges "
            "are ours",
        )  # fmt: skip


def _worse(trace: xr.Dataset) -> float:
    """nats by which all of the last tenth of the records stands above the best loss; 0 where that is no more than
    CHANGES times its usual change."""
    name = "train_loss" if values(trace, "val_loss") is None else "val_loss"
    if values(trace, name) is None:
        return 0.0
    loss = finite_rows(trace, name)[name].values
    last = max(3, round(len(loss) * 0.1))
    if len(loss) < 3 * last:
        return 0.0
    worse = float(loss[-last:].min() - loss.min())
    return worse if worse > CHANGES * float(np.median(np.abs(np.diff(loss)))) else 0.0


def _all_at_once(trace: xr.Dataset) -> tuple[int, tuple[Head, ...]] | None:
    """Since when the mean entropy of the heads is ONE_HOT or less, where it began TEN times as high.

    A healthy model keeps heads that look at several keys: sharp ones are some of many. Heads that look at the previous,
    at a repeated or at a following token have a reason to be one-hot, and are left out, as are models of few others.
    """
    entropy = trace["entropy_normalised"].values
    jobs = [trace[name].values[-1] for name in REASONS if values(trace, name) is not None]
    free = np.isfinite(entropy[-1]) & ~(np.max([np.zeros_like(entropy[-1]), *jobs], axis=0) > JOB)
    if 2 * free.sum() < np.isfinite(entropy[-1]).sum() or not free.any():
        return None
    mean = np.nanmean(entropy[:, free], axis=1)
    first = int(since(mean < ONE_HOT))
    if first == 0 or first > len(mean) - 3 or mean[: first + 1].max() < TEN * ONE_HOT:
        return None
    return int(trace["step"].values[first]), tuple((int(i), int(j)) for i, j in np.argwhere(free))


def scores(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Scores that outgrew the softmax in heads whose rows are not one-hot for it already."""
    trace = finite_rows(trace, "max_logit")
    logits, entropy = trace["max_logit"].values, values(trace, "entropy_normalised")
    told = np.zeros_like(logits[-1], bool) if entropy is None else entropy[-1] < ONE_HOT
    if found := lasting(trace, (logits > FLOAT32_RANGE) & ~told):
        step, heads = found
        yield Finding(
            "scores", "watch", "Attention scores outgrew the softmax", step, heads,
            f"the largest score is {max(at_end(logits, heads)):,.0f}; {FLOAT32_RANGE:.0f} below the "
            "largest, a key gets exactly no attention in float32",
            score_advice(meta, trace, step),
            "Dehghani et al. 2023; Wortsman et al. 2023; the edge is -ln of the smallest normal float32",
        )  # fmt: skip
