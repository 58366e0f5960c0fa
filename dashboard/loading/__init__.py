"""Cached access to `tracer`: the only place that caches, keyed by run, step and what was asked.

Nothing here is imported at the top that brings in torch: the first page paints without it.
Models are shared between sessions and threads: safe, because interventions travel with the call (`tracer.edits`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard.components import payload
from tracer.store import Run, list_runs, open_run

if TYPE_CHECKING:
    import xarray as xr

    from tracer.model import Transformer

DEFAULT_PROMPTS = {
    "python-stdlib": "def add(self, name, value):\n    self.name = name\n    self.value = value\n\ndef add(self, name",
}


def runs() -> list[Run]:
    """Every run under checkpoints/, newest first; cheap enough to ask on each rerun."""
    return list_runs()


def run(name: str) -> Run:
    """The run, or a ValueError that says why it cannot be opened."""
    return open_run(name)


def trace(opened: Run) -> xr.Dataset:
    """The committed trace in memory, without patterns; read again when the run has moved on."""
    return _trace(str(opened.dir.resolve()), opened.stamp)


@st.cache_data(max_entries=16, show_spinner=False)
def _trace(directory: str, stamp: str) -> xr.Dataset:
    dataset = open_run(directory).trace
    return dataset.drop_vars("pattern", errors="ignore").load()


def head_curves(opened: Run, measure: str) -> bytes:
    """A head measure over training, packed for the curves component."""
    return _head_curves(str(opened.dir.resolve()), opened.stamp, measure)


@st.cache_data(max_entries=128, show_spinner=False)
def _head_curves(directory: str, stamp: str, measure: str) -> bytes:
    recorded = _trace(directory, stamp)
    return payload.head_curves(recorded["step"].values, recorded[measure].values)


def model(opened: Run, step: int) -> Transformer:
    """The model after `step` updates, in eval mode; shared, never changed."""
    return _model(str(opened.dir.resolve()), step, opened.meta["created"])


@st.cache_resource(max_entries=24, show_spinner=False)
def _model(directory: str, step: int, created: str) -> Transformer:
    import torch

    torch.set_num_threads(1)  # every rerun is a new thread: a pool of workers for each would cost more than it saves
    return open_run(directory).model(step)


def example_prompt(opened: Run) -> str:
    """A text to begin with: one that repeats something, so that there is something to find."""
    return _example_prompt(str(opened.dir.resolve()), opened.meta["created"])


@st.cache_data(max_entries=64, show_spinner=False)
def _example_prompt(directory: str, created: str) -> str:
    opened = open_run(directory)
    if opened.meta["corpus"]["name"].startswith("python-stdlib"):
        return DEFAULT_PROMPTS["python-stdlib"]
    rows = opened.trace["prompt_tokens"].values
    ids = [int(t) for t in rows[0] if t > 0]
    return opened.tokenizer.decode(ids[: opened.config.model.n_ctx - 1])


def encode(opened: Run, text: str, cut: bool = False) -> Any:
    """Tokens of a prompt with the start token in front (`tracer.data.Encoded`); ValueErrors say what to do."""
    from tracer.data import encode_prompt

    return encode_prompt(opened.tokenizer, text, opened.config.model.n_ctx, cut=cut)


def look(opened: Run, step: int, tokens: list[int]) -> dict[str, np.ndarray]:
    """Every head on one prompt: `pattern` [layer head query_pos key_pos] and its head measures [layer head]."""
    return _look(str(opened.dir.resolve()), step, tuple(tokens), opened.meta["created"])


@st.cache_data(max_entries=128, show_spinner=False)
def _look(directory: str, step: int, tokens: tuple[int, ...], created: str) -> dict[str, np.ndarray]:
    import torch

    from tracer.inspect import look as compute

    return compute(_model(directory, step, created), torch.tensor([tokens]))


def size_mb(opened: Run) -> float:
    """Megabytes of the run directory."""
    return sum(p.stat().st_size for p in Path(opened.dir).rglob("*") if p.is_file()) / 1e6
