"""Patterns of a run's own prompts, kept while it was recorded: all there is to see where its model cannot be run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard.loading.kept import AS_RECORDED, OF_A_STEP, of_run
from tracer.pictures.prompt_patterns import Pool, PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

THUMBNAIL = 96
"""Cells a side of a head's picture among all others."""


@dataclass(frozen=True)
class Prompts:
    """The kept prompts of a run and the steps at which their patterns were kept."""

    names: list[str]
    strings: list[list[str]]
    """The tokens of each prompt."""
    steps: list[int]


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=AS_RECORDED)
def prompts(run: Run) -> Prompts:
    """What was kept so far; no names where the run keeps no patterns."""
    trace = run.trace
    if "pattern" not in trace or not trace["pattern"].size:
        return Prompts([], [], [])
    known, steps = _known(run), [int(step) for step in trace["step"].values]
    new = [row for row, step in enumerate(steps) if step not in known]
    corner: np.ndarray = trace["pattern"].isel(step=new, layer=0, head=0, query_pos=0, key_pos=0).values
    known.update({steps[row]: bool(np.isfinite(kept).any()) for row, kept in zip(new, corner, strict=True)})
    return Prompts([str(n) for n in trace["prompt"].values], _strings(trace), [step for step in steps if known[step]])


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=OF_A_STEP)
def _known(run: Run) -> dict[int, bool]:
    """Whether patterns were kept at a step, which takes 10 ms to find out and never changes."""
    return {}


def _strings(trace: xr.Dataset) -> list[list[str]]:
    recorded = trace["prompt_tokens"].attrs.get("strings") if "prompt_tokens" in trace else None
    if recorded:
        return [list(map(str, row)) for row in recorded]
    return [[str(i) for i in range(trace.sizes["query_pos"])] for _ in range(trace.sizes["prompt"])]


def of_prompt(run: Run, step: int, name: str) -> PromptPatterns:
    """Every head on a kept prompt at one of its steps."""
    found, about = prompts(run), run.about
    strings = found.strings[found.names.index(name)]
    patterns, sizes = _patterns(run, step, name, len(strings))

    def window(layer: int, head: int, rows: slice, cols: slice) -> np.ndarray:
        n_query, n_key = sizes[layer]
        return patterns[layer, head, :n_query, :n_key][rows, cols]

    def overview(layer: int, head: int, size: int, pool: Pool) -> np.ndarray:
        return pooled(window(layer, head, slice(None), slice(None)), size, pool)

    return PromptPatterns(
        (*of_run(run), name), step, strings, list(about.causal) or [True] * len(patterns), sizes,
        list(about.layers), _thumbs(run, step, name, len(strings)), window, overview,
    )  # fmt: skip


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=OF_A_STEP)
def _patterns(run: Run, step: int, name: str, n: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Patterns [layer head query_pos key_pos], nan beyond a prompt's end, and (queries, keys) of each layer.

    A layer without a number, in a run that diverged, counts as n x n.
    """
    kept = run.trace["pattern"].sel(step=step, prompt=name).values.astype(np.float32)
    finite = np.isfinite(kept)
    lengths = np.stack([finite.any(axis=(1, 3)).sum(axis=1), finite.any(axis=(1, 2)).sum(axis=1)], axis=1)
    return kept, [(int(rows) or n, int(cols) or n) for rows, cols in lengths]


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=OF_A_STEP)
def _thumbs(run: Run, step: int, name: str, n: int) -> np.ndarray:
    kept, sizes = _patterns(run, step, name, n)
    n_query, n_key = max(q for q, _ in sizes), max(k for _, k in sizes)
    exists = np.isfinite(kept).any(axis=(2, 3), keepdims=True)
    square = np.nan_to_num(kept[:, :, :n_query, :n_key])
    return np.where(exists, pooled(square, THUMBNAIL, "max"), np.nan)


def pooled(pattern: np.ndarray, size: int, pool: Pool) -> np.ndarray:
    """The last two axes in at most size x size blocks, each its largest or its mean value."""
    n_query, n_key = pattern.shape[-2:]
    rows, cols = (np.arange(0, n, -(-n // size)) for n in (n_query, n_key))
    if pool == "max":
        return np.maximum.reduceat(np.maximum.reduceat(pattern, rows, axis=-2), cols, axis=-1)
    sums = np.add.reduceat(np.add.reduceat(pattern, rows, axis=-2), cols, axis=-1)
    return sums / np.outer(np.diff([*rows, n_query]), np.diff([*cols, n_key]))
