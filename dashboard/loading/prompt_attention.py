"""Cached looks at every head on one prompt: a text that the model reads now, or a prompt that the run kept.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import streamlit as st

from dashboard import loading
from tracer.pictures.atlas import pack_thumbs
from tracer.pictures.overview import pack as pack_overview
from tracer.store import Run, open_run

if TYPE_CHECKING:
    from tracer.analysis.prompt_attention import PromptAttention

WHOLE = 256
"""Tokens up to which a pattern is drawn whole; a longer one is an overview and an exact window of this size at most."""
OVERVIEW = 512
"""Cells a side of the overview."""
Head = tuple[int, int]
Pool = Literal["max", "mean"]


@dataclass(frozen=True)
class Sight:
    """Every head on one prompt, wherever it comes from."""

    key: tuple[object, ...]
    """Run and prompt: what a window into it belongs to."""
    step: int
    strings: list[str]
    """Of the tokens that look, one each."""
    causal: list[bool]
    """By layer."""
    sizes: list[tuple[int, int]]
    """Query and key positions, by layer."""
    names: list[str]
    """Path of each layer's module; empty for our own models."""
    thumbs: np.ndarray
    """[layer head rows cols]; nan where a layer has fewer heads than others."""
    window: Callable[[int, int, slice, slice], np.ndarray]
    """window(layer, head, rows, cols): exact attention [query_pos key_pos]."""
    overview: Callable[[int, int, int, Pool], np.ndarray]
    """overview(layer, head, size, pool): the whole pattern in at most size x size blocks."""

    def queries(self, layer: int) -> list[str]:
        """The tokens that look: known by position only where there are more or fewer than the prompt has."""
        n_query = self.sizes[layer][0]
        return self.strings if n_query == len(self.strings) else [str(i) for i in range(n_query)]

    def keys(self, layer: int) -> list[str]:
        """The tokens that are looked at: of cross attention only their positions are known."""
        n_query, n_key = self.sizes[layer]
        own = n_query == n_key == len(self.strings) and not (self.names and self.names[layer].endswith("(cross)"))
        return self.strings if own else [str(i) for i in range(n_key)]


def of_text(run: Run, step: int, tokens: list[int], strings: list[str]) -> Sight:
    """Every head on a prompt that the model reads now."""
    compute = _look if len(tokens) <= WHOLE else _long_look
    directory, created = str(run.dir.resolve()), run.meta["created"]
    found = compute(directory, step, tuple(tokens), created)
    return Sight(
        (directory, created, tuple(tokens)), step, strings, found.causal, [call.shape[1:] for call in found.calls],
        list(run.about.layers), found.thumbs, found.window, found.overview,
    )  # fmt: skip


def _compute(directory: str, step: int, tokens: tuple[int, ...]) -> PromptAttention:
    from dataclasses import replace

    import torch

    from tracer.analysis.prompt_attention import look

    found = look(loading.model(open_run(directory), step), torch.tensor([tokens]))
    nothing = np.broadcast_to(np.float32("nan"), found.logits.shape)  # no page asks, and 1,024 of GPT-2 are 206 MB
    return replace(found, logits=nothing)


@st.cache_resource(max_entries=16, show_spinner=False)
def _look(directory: str, step: int, tokens: tuple[int, ...], created: str) -> PromptAttention:
    return _compute(directory, step, tokens)


@st.cache_resource(max_entries=2, show_spinner="Reading the prompt …")
def _long_look(directory: str, step: int, tokens: tuple[int, ...], created: str) -> PromptAttention:
    """q, k and v of every layer stay in memory: 113 MB for GPT-2 on 1,024 tokens."""
    return _compute(directory, step, tokens)


def atlas(sight: Sight, stamp: str, measures: dict[str, np.ndarray]) -> bytes:
    """Every head as a thumbnail with its measures, packed for the atlas; `stamp` says which measures these are."""
    return _atlas((*sight.key, sight.step, stamp, *measures), sight, measures)


@st.cache_data(max_entries=32, show_spinner=False)
def _atlas(key: tuple[object, ...], _sight: Sight, _measures: dict[str, np.ndarray]) -> bytes:
    largest = max(q for q, _ in _sight.sizes), max(k for _, k in _sight.sizes)
    return pack_thumbs(_sight.thumbs, _measures, n=largest, causal=_sight.causal, layer_names=_sight.names or None)


def overview(sight: Sight, head: Head, pool: Pool, label: str) -> bytes:
    """One head's whole pattern in blocks, packed for the overview."""
    return _overview((*sight.key, sight.step), head, pool, label, sight)


@st.cache_data(max_entries=32, show_spinner="Drawing the overview …")
def _overview(key: tuple[object, ...], head: Head, pool: Pool, label: str, _sight: Sight) -> bytes:
    n_query, n_key = _sight.sizes[head[0]]
    return pack_overview(
        _sight.overview(*head, OVERVIEW, pool), n_query=n_query, n_key=n_key, factor_q=-(-n_query // OVERVIEW),
        factor_k=-(-n_key // OVERVIEW), label=label, causal=_sight.causal[head[0]], pool=pool,
    )  # fmt: skip
