"""Cached findings of a run: what went wrong in it, what there was to look at, and how low its entropy could be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading.kept import AS_RECORDED, OF_A_STEP
from dashboard.loading.rows import evenly
from tracer.diagnosis import Diagnosis, examine
from tracer.diagnosis.futures import Future, judged
from tracer.diagnosis.own_rules import given_rules
from tracer.measures.aliases import Head
from tracer.measures.chance import uniform_entropy
from tracer.measures.setting import Setting
from tracer.named_code import RULES, remembered
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

MOST_SNAPSHOTS = 60
"""Of more, as many at equal distances: a curve on a page shows no more."""


def diagnosis(run: Run) -> Diagnosis:
    """What went wrong, the worst first, and what was looked for; computed again when the run has moved on."""
    return _diagnosis(run, remembered(RULES))


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def _diagnosis(run: Run, rules: tuple[str, ...]) -> Diagnosis:
    """With rules of a person's own that this server was started with (`manyeyes --rules`), or why they are none."""
    try:
        given_rules(rules)
    except ValueError as error:
        found = examine(run, trace=_recorded(run))
        return replace(found, wrong=[*found.wrong, str(error)])
    return examine(run, rules, trace=_recorded(run))


def _recorded(run: Run) -> xr.Dataset | None:
    """What other parts of a page have read; None where they could not: what looks then says why."""
    try:
        return loading.trace(run)
    except ValueError:
        return None


@st.cache_data(max_entries=256, show_spinner=False, hash_funcs=AS_RECORDED)
def future(run: Run) -> Future:
    """What became of a finding in a run that `tracer remedy` made."""
    return judged(run)


@dataclass(frozen=True)
class Bounds:
    """Of one head at its run's snapshots, each an array [step]; see `tracer.analysis.entropy_bound.Bound`."""

    steps: np.ndarray
    entropy: np.ndarray
    by_scores: np.ndarray
    by_weights: np.ndarray
    score_size: np.ndarray
    weight_size: np.ndarray
    sequences: int
    tokens: int

    @property
    def uniform(self) -> float:
        """The mean entropy of rows that spread over every key, on the same rows."""
        return uniform_entropy(Setting(self.tokens, 0, 0))


def bounds(run: Run, head: Head) -> Bounds | None:
    """None where the weights of a model of ours, or the texts that it is measured on, were not kept."""
    steps = run.steps
    if run.why_not("entropy_bound") or not steps:
        return None
    tokens = _texts(run)
    if tokens is None:
        return None
    steps = [steps[i] for i in evenly(len(steps), MOST_SNAPSHOTS)]
    found = np.stack([_bound(run, step, tokens)[:, head[0], head[1]] for step in steps], -1)
    return Bounds(np.array(steps), *found, *tokens.shape)


def _texts(run: Run) -> np.ndarray | None:
    """The held-out passages whose patterns are kept, as tokens [sequence pos]."""
    trace = loading.trace(run)
    if "prompt_tokens" not in trace.coords:
        return None
    texts = [str(name).startswith("text ") for name in trace["prompt"].values]
    tokens = trace["prompt_tokens"].values[texts]
    tokens = tokens[:, (tokens >= 0).all(axis=0)]
    return tokens.astype(np.int64) if tokens.size and tokens.shape[1] > 1 else None


@st.cache_data(max_entries=1024, show_spinner=False, hash_funcs=OF_A_STEP)
def _bound(run: Run, step: int, tokens: np.ndarray) -> np.ndarray:
    """[quantity layer head] of one snapshot, some 25 ms."""
    import torch

    from tracer.analysis.entropy_bound import bound
    from tracer.model import Transformer

    torch.set_num_threads(1)
    model = run.model(step)
    assert isinstance(model, Transformer)
    return torch.stack(list(bound(model, torch.from_numpy(tokens)))).numpy()
