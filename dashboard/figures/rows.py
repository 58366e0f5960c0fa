"""Which rows of a trace to draw, and the plain numbers that follow from them: numpy in, numpy out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def last_measured(steps: ArrayLike, values: ArrayLike, step: float | None = None) -> int | None:
    """Index of the last row up to `step` (None: of all rows) that holds a number; None when there is none.

    The newest row has no update ratio yet, so the row to show is not always the last.
    """
    steps, values = np.asarray(steps), np.asarray(values, float)
    wanted = np.isfinite(values.reshape(len(steps), -1)).any(axis=1)
    if step is not None:
        wanted &= steps <= step
    found = np.flatnonzero(wanted)
    return int(found[-1]) if found.size else None


def stages(loss: ArrayLike, count: int) -> list[int]:
    """At most `count` rows from first to last, where the best loss so far has gone equal parts of its way down."""
    best = np.fmin.accumulate(np.asarray(loss, float))
    levels = np.linspace(best[0], best[-1], count)
    reached = [
        int(np.flatnonzero(best <= level + 1e-12)[0]) if (best <= level + 1e-12).any() else 0 for level in levels[:-1]
    ]
    return sorted({*reached, best.size - 1})


def merge(series: Sequence[tuple[ArrayLike, ArrayLike]]) -> tuple[Floats, Floats]:
    """Lines with their own steps on one axis: the union of steps, and values [line step], NaN where a line has none."""
    union = np.unique(np.concatenate([np.asarray(steps, float) for steps, _ in series]))
    merged = np.full((len(series), union.size), np.nan)
    for line, (steps, values) in zip(merged, series, strict=True):
        line[np.searchsorted(union, np.asarray(steps, float))] = np.asarray(values, float)
    return union, merged


def perplexity(loss: ArrayLike) -> Floats:
    """exp of a loss in nats; inf, without a warning, beyond what a float holds."""
    with np.errstate(over="ignore"):
        return np.exp(np.asarray(loss, float))


def total_norm(norms: ArrayLike) -> Floats:
    """The l2 norm of all tensors together [step], from that of each [step param]; clipping limits it."""
    return np.sqrt(np.square(np.asarray(norms, float)).sum(axis=1))


def wide_range(values: ArrayLike, factor: float = 100.0) -> bool:
    """Do the values, all positive, span more than `factor`, so that only a logarithmic axis shows them all?"""
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    return bool(values.size and values.min() > 0 and values.max() > factor * values.min())


def short_names(params: Sequence[str]) -> list[str]:
    """Names that fit beside a picture: blocks.0.attn.W_Q is L0 W_Q, embed.W_E is W_E; all stay distinct."""
    short = []
    for name in params:
        parts = name.split(".")
        if parts[0] == "blocks" and len(parts) > 2:
            inner = parts[3:] if parts[2] == "attn" else parts[2:]
            short.append(f"L{parts[1]} {'.'.join(inner)}")
        else:
            short.append(parts[-1] if parts[-1] in ("W_E", "W_pos", "W_U") else name)
    return short if len(set(short)) == len(short) else list(params)


def families(params: Sequence[str]) -> tuple[list[int], list[str]]:
    """A colour group for each tensor (embeddings, one a block, output), and the names of the groups."""
    names = []
    for name in params:
        parts = name.split(".")
        block = parts[0] == "blocks" and len(parts) > 2
        names.append(
            f"layer {parts[1]}"
            if block
            else "embeddings"
            if parts[0].endswith("embed") and parts[0] != "unembed"
            else "output"
        )
    order = sorted(
        set(names), key=lambda n: (n == "output", n != "embeddings", int(n.split()[1]) if n[:5] == "layer" else 0)
    )
    return [order.index(name) for name in names], order
