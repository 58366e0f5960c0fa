"""How sure a number is: a mean over sequences, whether it is 0, when many were tried, and beside other heads' effects.

Intervals and p-values are over sequences, corrections over heads that were tried; `null` is over sets of other heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from math import ceil, comb, log2, prod, sqrt
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.many_sets import metric_under_ablation
from tracer.ablate.metrics import AnyMetric, metric_of
from tracer.ablate.parts import check_heads
from tracer.config.field_docs import fields_in_help
from tracer.huggingface.any_model import any_model
from tracer.interventions.replacements import Mode
from tracer.measures.aliases import Head
from tracer.measures.intervals import student, student_tails
from tracer.model.protocol import HeadModel

SUBSETS = range(6, 13)
"""So many values have enough subsets for an interval of 95 %, and not too many to take them all."""
LEVEL = 0.05
"""Below it a corrected p-value says that a head has an effect."""


@fields_in_help
@dataclass(frozen=True)
class Estimate:
    """A mean over sequences with its 95 % interval; nan bounds for one sequence."""

    mean: float
    """In the unit of what was measured, such as nats."""
    low: float
    """Low end of the interval."""
    high: float
    """High end of it."""
    n: int
    """Sequences."""


def estimate(per_sequence: Float[np.ndarray, " n"]) -> Estimate:
    """Mean of one value a sequence, and the interval in which that of all sequences is 95 times in 100.

    Source: of 6 to 12 values Hartigan 1969 (JASA 64, 1303): the means of their subsets, at most 2.5 % of them left
    out at either end; exact for any symmetric distribution, where Student's t holds too often if tails are heavy
    (97.2 % of effects on 8 sequences). Of others Student 1908. Percentiles of resampled means (Efron 1979) are too near
    for few sequences: of effects on 8 or 32 of them they held the truth less often, and no better where effects are
    skewed.
    """
    values, n = np.asarray(per_sequence, np.float64), len(per_sequence)
    mean = float(values.mean())
    if n < 2:
        return Estimate(mean, float("nan"), float("nan"), n)
    if n in SUBSETS:
        members, outer = _subsets(n), 2**n // 40
        means = np.sort(members @ values / members.sum(1))
        return Estimate(mean, min(mean, float(means[outer - 1])), max(mean, float(means[-outer])), n)
    half = student(n - 1) * float(values.std(ddof=1)) / n**0.5
    return Estimate(mean, mean - half, mean + half, n)


def ratio(above: Float[np.ndarray, " n"], below: Float[np.ndarray, " n"]) -> Estimate:
    """Mean of one value a sequence over the mean of another, with the interval of `estimate`.

    Source: Cochran 1977, ratio estimators: the ratio R varies as the mean of (above - R below) / mean(below) does.
    """
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    found = above.mean() / below.mean()
    return estimate(found + (above - found * below) / below.mean())


def within(found: Estimate, least: float = 0.0, most: float = 1.0) -> Estimate:
    """The same, of a number that is never outside of these bounds: cut to them, an interval holds it as often."""
    low, high = (float(np.clip(end, least, most)) for end in (found.low, found.high))
    return replace(found, low=low, high=high)


def disagreements(effects: Mapping[str, Estimate]) -> list[tuple[str, str]]:
    """The pairs of replacements whose intervals do not overlap: they differ by more than both are unsure of.

    Source: ours. Estimates of one sequence have no interval (nan) and so never agree.
    """
    return [
        (one, other)
        for (one, a), (other, b) in combinations(effects.items(), 2)
        if not (a.low <= b.high and b.low <= a.high)
    ]


def agree(effects: Mapping[str, Estimate]) -> bool:
    """Do all replacements (zero, mean, resample) tell the same story? Where not, show them together."""
    return not disagreements(effects)


def p_value(per_sequence: Float[np.ndarray, "*any n"]) -> Float[np.ndarray, "*any"]:
    """That sequences without an effect on average give a mean this far from 0: two-sided; nan for one sequence.

    The largest of: the exact share of sign flips of up to 12 values (Fisher 1935), of which the interval of `estimate`
    is the inversion, and never less than their smallest, 2^(1 - n); Student 1908; and Student of Hall's transformation
    (1992, JRSSB 54, 221), which takes skewness off. Student alone is right in the middle and wrong in the tail that a
    correction for many tries needs, where values are not normal. What this holds for was attacked in docs/truth.md:
    symmetric values of any tails, and a skewness of up to 0.5; not the skewness of an exponential distribution.
    """
    values = np.asarray(per_sequence, np.float64)
    n = values.shape[-1]
    if n < 2:
        return np.full(values.shape[:-1], np.nan)
    mean, sd = values.mean(-1), values.std(-1, ddof=1)
    there = np.where(sd > 0, sd, 1)
    t = np.where(sd > 0, mean / there * sqrt(n), np.copysign(np.inf, mean))
    skew = ((values - mean[..., None]) ** 3).mean(-1) / there**3
    finite = np.where(np.isfinite(t), t, 0)
    hall = finite + skew * (2 * finite**2 + 1) / (6 * sqrt(n)) + skew**2 * finite**3 / (27 * n)
    hall = np.where(np.isfinite(t), np.maximum(hall * np.sign(t), 0), np.inf)
    found = np.maximum(student_tails(np.asarray(np.minimum(np.abs(t), hall)), n - 1), smallest_p(n))
    found = np.where(mean == 0, 1.0, found)
    if n <= max(SUBSETS):
        sums = values @ _subsets(n).T
        fewer = np.minimum((sums <= 0).sum(-1), (sums >= 0).sum(-1)) + 1  # and the empty subset, whose sum is 0
        found = np.maximum(found, np.minimum(1, fewer / 2 ** (n - 1)))
    return np.asarray(np.where(np.isnan(mean), np.nan, found))


def smallest_p(n: int) -> float:
    """The least that `p_value` can be for n sequences: all of one sign, as one of 2^n signs and its opposite are."""
    return 2.0 ** (1 - n)


def holm(p: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """p-values adjusted so that rejecting those below a makes one false rejection or more with probability a at most.

    Source: Holm 1979: the i-th smallest of m times m - i + 1, never less than the one before.
    """
    return _adjusted(p, lambda x: np.maximum.accumulate(x * np.arange(len(x), 0, -1)))


def benjamini_hochberg(p: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """p-values adjusted so that of the rejections below a, a share of a is expected to be false.

    Source: Benjamini and Hochberg 1995: the i-th smallest of m times m / i, never more than the one after. Valid for
    independent and positively dependent tests.
    """
    return _adjusted(p, lambda x: np.minimum.accumulate((x * len(x) / np.arange(1, len(x) + 1))[::-1])[::-1])


def sequences_needed(tries: int) -> int:
    """So many sequences that one of this many tries can be left after Holm's correction at all."""
    return ceil(log2(tries / LEVEL)) + 1


def too_few(n: int, tries: int) -> str:
    """In words, why none of this many tries can be left after Holm's correction; empty where one can."""
    if n >= (needed := sequences_needed(tries)):
        return ""
    least = min(1.0, tries * smallest_p(n))
    return (
        f"With {n} sequence{'s' * (n > 1)} no head can be significant: corrected for {tries} heads, p can't be below "
        f"{least:.2g}. It takes {needed} sequences."
    )


@fields_in_help
@dataclass(frozen=True)
class Null:
    """The effect of a set of heads beside those of other sets with as many heads in each layer."""

    effect: float
    """Of the set itself, in the metric's units."""
    others: Float[np.ndarray, " n"]
    """Those of the other sets."""
    p: float
    """(1 + others that do at least as much harm) / (1 + n): never 0, and exact when every other set was tried."""

    @property
    def smallest_p(self) -> float:
        """What p would be if no other set did as much harm: with 3 sets 0.25, whatever the effect."""
        return 1 / (1 + len(self.others))

    @property
    def percentile(self) -> float:
        """The share of the other sets, in per cent, that do less harm."""
        return 100 * (1 - (self.p * (1 + len(self.others)) - 1) / len(self.others))


def random_sets(model: HeadModel, like: Iterable[Head], n: int = 200, seed: int = 0) -> list[tuple[Head, ...]]:
    """n different sets with as many heads in each layer as `like`, never `like` itself; all there are if fewer."""
    chosen = tuple(check_heads(model, like))
    sizes = Counter(layer for layer, _ in chosen)
    if not sizes:
        raise ValueError("the set of heads is empty: name at least one (layer, head)")
    if n < 1:
        raise ValueError(f"n={n} random sets: ask for at least 1")
    n_heads = model.heads_of_layers
    n_others = prod(comb(n_heads[layer], size) for layer, size in sizes.items()) - 1
    if n_others == 0:
        raise ValueError("whole layers have nothing to be compared with: no other set has as many heads in each layer")
    if n_others <= n:
        by_layer = [
            [tuple((layer, head) for head in heads) for heads in combinations(range(n_heads[layer]), size)]
            for layer, size in sizes.items()
        ]
        return [found for parts in product(*by_layer) if (found := sum(parts, ())) != chosen]
    rng, found = np.random.default_rng(seed), {}
    while len(found) < n:
        drawn = [(layer, np.sort(rng.choice(n_heads[layer], size, replace=False))) for layer, size in sizes.items()]
        one = tuple((layer, int(head)) for layer, heads in drawn for head in heads)
        if one != chosen:
            found[one] = True
    return list(found)


@any_model
def null(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    heads: Iterable[Head],
    mode: Mode | str = "zero",
    *,
    n: int = 200,
    metric: AnyMetric | None = None,
    seed: int = 0,
    **how: Any,
) -> Null:
    """The effect of a set of heads against that of n random sets with as many heads in each layer.

    Further arguments as in `metric_under_ablation`. Harm is a rise of a loss, a fall of a logit difference or
    log-probability.
    """
    metric, heads = metric_of(metric), tuple(heads)
    sets = [(), heads, *random_sets(model, heads, n, seed)]
    found = metric_under_ablation(model, tokens, sets, mode, metric=metric, seed=seed, **how)
    values = found.mean((1, 2)).double().cpu().numpy()
    effect, others = values[1] - values[0], values[2:] - values[0]
    as_bad = int((metric.worse * others >= metric.worse * effect).sum())
    return Null(float(effect), others, (1 + as_bad) / (1 + len(others)))


@cache
def _subsets(n: int) -> Float[np.ndarray, "subset n"]:
    """1 where a subset has a value; of all subsets but the empty one."""
    return ((np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1).astype(np.float64)


def _adjusted(p: np.ndarray, of_sorted: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """nan is no test: it stays, and counts among none."""
    found = np.ravel(p).astype(np.float64)
    order = np.argsort(found, kind="stable")[: int((~np.isnan(found)).sum())]
    found[order] = np.minimum(of_sorted(found[order]), 1)
    return found.reshape(np.shape(p))
