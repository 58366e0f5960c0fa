"""Which rows of a trace to draw, and the plain numbers that follow from them: numpy in, numpy out."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.measures.aliases import Floats


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
    levels = np.linspace(best[0], best[-1], count)[:-1]
    return sorted({*(int((best <= level + 1e-12).argmax()) for level in levels), best.size - 1})


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """At most so many of the numbers 0 to n - 1, at equal distances, the first and the last among them."""
    return np.linspace(0, n - 1, min(most, n)).round().astype(np.int64)


def merge(series: Sequence[tuple[ArrayLike, ArrayLike]]) -> tuple[Floats, Floats]:
    """Lines with their own steps on one axis: the union of steps, and values [line step], NaN where a line has none."""
    union = np.unique(np.concatenate([np.asarray(steps, float) for steps, _ in series]))
    merged = np.full((len(series), union.size), np.nan)
    for line, (steps, values) in zip(merged, series, strict=True):
        line[np.searchsorted(union, np.asarray(steps, float))] = np.asarray(values, float)
    return union, merged


def wide_range(values: ArrayLike) -> bool:
    """Do the values, all positive, span more than a factor of 100, so that only a logarithmic axis shows them all?"""
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    return bool(values.size and values.min() > 0 and values.max() > 100 * values.min())


def short_names(params: Sequence[str]) -> list[str]:
    """Names that fit beside a picture, all distinct: blocks.0.attn.W_Q is L0 W_Q, model.h.3.ln.weight is L3 ln."""
    short = []
    stacks = _stacks(params)
    shared = len(_common([name.split(".") for name in params]))
    for name in params:
        stem, layer, rest = _place(name)
        if layer:
            rest = rest[1:] if rest[0] == "attn" and len(rest) == 2 else rest
            short.append(" ".join(filter(None, [stacks[stem], f"L{layer}", _bare(rest)])))
        else:
            short.append(rest[-1] if rest[-1] in ("W_E", "W_pos", "W_U") else _bare(rest[shared:]))
    return short if len(set(short)) == len(short) else list(params)


def families(params: Sequence[str]) -> tuple[list[int], list[str]]:
    """A colour group for each tensor (embeddings, one a layer, output), and the names of the groups in their order."""
    stacks = _stacks(params)
    names: list[str] = []
    for name in params:
        stem, layer, _ = _place(name)
        if layer:
            names.append(f"{stacks[stem]} layer {layer}".strip())
        else:
            names.append("output" if any("layer" in n for n in names) else "embeddings")
    layers = [name for name in dict.fromkeys(names) if name not in ("embeddings", "output")]
    order = [name for name in ("embeddings", *layers, "output") if name in names]
    return [order.index(name) for name in names], order


def _place(name: str) -> tuple[str, str, list[str]]:
    """Where a tensor is: the path of its stack of layers, its number in it, and the rest; no number outside of one."""
    parts = name.split(".")
    at = next((i for i, part in enumerate(parts[:-1]) if part.isdigit()), None)
    return ("", "", parts) if at is None else (".".join(parts[:at]), parts[at], parts[at + 1 :])


def _stacks(params: Sequence[str]) -> dict[str, str]:
    """What tells the stacks of layers apart, by path: nothing where there is one, `encoder` and `decoder` of two."""
    stems = list(dict.fromkeys(stem for stem, layer, _ in map(_place, params) if layer))
    parts = [stem.split(".") for stem in stems]
    lead, tail = len(_common(parts)), len(_common([part[::-1] for part in parts]))
    return {
        stem: ".".join(part[lead : len(part) - tail]) if len(stems) > 1 else ""
        for stem, part in zip(stems, parts, strict=True)
    }


def _common(paths: Sequence[list[str]]) -> Sequence[str]:
    """The parts that all paths begin with, never a whole path."""
    return commonprefix([path[:-1] for path in paths])


def _bare(parts: list[str]) -> str:
    return ".".join(parts).removesuffix(".weight")
