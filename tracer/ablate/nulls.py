"""Is an effect more than that of any other heads, and does it hold when many were tried?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations, product
from math import ceil, comb, log2, prod
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.engine import metric_under_ablation
from tracer.ablate.estimates import smallest_p
from tracer.ablate.metrics import AnyMetric, metric_of
from tracer.ablate.parts import check_heads
from tracer.huggingface.any_model import any_model
from tracer.interventions.replacements import Mode
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel

LEVEL = 0.05
"""Below it a corrected p-value says that a head has an effect."""


@dataclass(frozen=True)
class Null:
    """The effect of a set of heads beside those of other sets with as many heads in each layer."""

    effect: float
    others: Float[np.ndarray, " n"]
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


def _adjusted(p: np.ndarray, of_sorted: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """nan is no test: it stays, and counts among none."""
    found = np.ravel(p).astype(np.float64)
    order = np.argsort(found, kind="stable")[: int((~np.isnan(found)).sum())]
    found[order] = np.minimum(of_sorted(found[order]), 1)
    return found.reshape(np.shape(p))
