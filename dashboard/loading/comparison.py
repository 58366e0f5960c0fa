"""Cached comparisons: how far the patterns of two prompts are apart, and two ablations on the same sequences.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard.loading import ablation, head_scores
from dashboard.loading.ablation import Setup
from dashboard.loading.kept import OF_A_PROMPT
from tracer.analysis.similarity import distances, total_variation
from tracer.measures.aliases import Head
from tracer.pictures.prompt_patterns import PromptPatterns

if TYPE_CHECKING:
    import xarray as xr

    from tracer.ablate import Estimate
    from tracer.store import Run

Partners = dict[Head, Head]
"""The head of the other model that each head is laid beside; heads that have none are not in it."""
ROWS = 256
"""Query rows of a pattern in memory at a time."""


def began_alike(one: Run, other: Run) -> bool:
    """Did both begin with the same weights, so that a label is the same head in both? Else labels mean nothing.

    A run and its fork did, and so did two runs of one seed and one model; of models of others nobody knows.
    """
    mine, its = ({run.name, (run.meta.get("parent") or {}).get("run", run.name)} for run in (one, other))
    if mine & its:
        return True
    if one.why_not("recipe") or other.why_not("recipe"):
        return False
    a, b = one.config, other.config
    return (a.seed, a.model) == (b.seed, b.model)


def unlikeness(one: xr.Dataset, step: int, other: xr.Dataset, other_step: int) -> np.ndarray:
    """How differently each head of one run behaves from each of another, [layer head other_layer other_head].

    Over the measures that both traces hold, at the rows recorded nearest to the steps
    (`tracer.analysis.similarity.distances`).
    """
    names = [name for name in head_scores.head_measures(one) if name in head_scores.head_measures(other)]

    def vectors(trace: xr.Dataset, step: int) -> np.ndarray:
        shape = (trace.sizes["layer"] * trace.sizes["head"], len(names))
        return np.array([head_scores.head_means(trace, name, step).ravel() for name in names], np.float64).T.reshape(
            shape
        )

    apart = distances(vectors(one, step), vectors(other, other_step))
    sizes = (trace.sizes[axis] for trace in (one, other) for axis in ("layer", "head"))
    return apart.reshape(*sizes)


def partners(exists: np.ndarray, apart: np.ndarray | None = None) -> Partners:
    """For each head the one with its label, where `exists` [layer head] says so; with `apart` the most alike one."""
    if apart is not None:
        alike = {head: head_scores.top_head(-apart[head]) for head in np.ndindex(apart.shape[:2])}
        return {(layer, head): other for (layer, head), other in alike.items() if other}
    return {(layer, head): (layer, head) for layer, head in np.argwhere(exists).tolist()}


def corresponds(one: PromptPatterns, head: Head, other: PromptPatterns, partner: Head) -> bool:
    """Does each cell of one pattern mean the same as that of the other: the same tokens in the same places?"""
    (a, _), (b, _) = head, partner
    return (one.queries(a), one.keys(a)) == (other.queries(b), other.keys(b))


def cells(shown: PromptPatterns) -> int:
    """Of all patterns of a prompt."""
    return sum(q * k for q, k in shown.sizes) * shown.thumbs.shape[1]


@st.cache_data(max_entries=64, show_spinner="Comparing every head …", hash_funcs=OF_A_PROMPT)
def moved(one: PromptPatterns, other: PromptPatterns, beside: Partners) -> np.ndarray:
    """Mean over queries of the total variation distance of each head from its partner, [layer head]; nan without."""
    found = np.full(one.thumbs.shape[:2], np.nan)
    for layer, head in np.argwhere(~np.isnan(one.thumbs).all(axis=(2, 3))):
        a = int(layer), int(head)
        b = beside.get(a)
        if b is not None and corresponds(one, a, other, b):
            found[a] = _mean_distance(one, a, other, b)
    return found


def _mean_distance(one: PromptPatterns, a: Head, other: PromptPatterns, b: Head) -> float:
    """In blocks of rows: a long pattern is never whole in memory."""
    n_query, whole = one.sizes[a[0]][0], slice(None)
    blocks = [slice(start, start + ROWS) for start in range(0, n_query, ROWS)]
    rows = [total_variation(one.window(*a, block, whole), other.window(*b, block, whole)) for block in blocks]
    return float(np.concatenate(rows).mean())


@st.cache_data(max_entries=64, show_spinner=False)
def differences(a: Setup, b: Setup) -> dict[str, Estimate | None]:
    """What an ablation changes in b more than in a, sequence by sequence; None where they read other sequences."""
    import torch

    from tracer.ablate import Effect, estimate, losses

    ours, theirs = (ablation.batches(one.opened).sequences(one.mode) for one in (a, b))
    others = {name: tokens for name, tokens, _ in theirs}

    def by_sequence(setup: Setup, name: str, tokens: torch.Tensor, where: slice) -> np.ndarray:
        reference = ablation.batches(setup.opened).reference(name, setup.mode)
        sets = [(), setup.off]
        e = Effect(*losses(setup.model, tokens, sets, setup.mode, reference=reference, frozen=setup.frozen))
        return e.delta[:, where].mean(1).cpu().numpy()

    found: dict[str, Estimate | None] = {}
    for name, tokens, where in ours:
        paired = name in others and torch.equal(others[name], tokens)
        found[name] = (
            estimate(by_sequence(b, name, tokens, where) - by_sequence(a, name, tokens, where)) if paired else None
        )
    return found
