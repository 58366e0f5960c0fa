"""Cached readings of the weights of heads; the computing is `tracer`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import norm_scales
from dashboard.loading.kept import Progress, kept, of_run
from dashboard.loading.norm_scales import Key
from tracer.pictures import bipartite
from tracer.store import Run, open_run

if TYPE_CHECKING:
    from torch import Tensor

    from tracer.analysis.by_distance import ByDistance, Distances
    from tracer.analysis.token_circuits import Entries
    from tracer.model.protocol import HeadWeights

Head = tuple[int, int]
Kind = Literal["k", "q", "v"]
TOP = 12
LONGEST_PERIOD = 25
"""Tokens that stand twice for the attention by distance, as in Olsson et al. 2022."""
MOST_POSITIONS = 1024
"""Of others' models, whose contexts may be long."""
AT_ONCE = 2**25
"""Entries of a circuit over the vocabulary that are streamed unasked: about half a second."""


def key_of(run: Run, step: int) -> Key:
    return *of_run(run), step


@st.cache_resource(max_entries=4, show_spinner="Reading the weights of every head …")
def weights(key: Key) -> HeadWeights:
    """Of our models and of others; ValueError where heads cannot be told apart."""
    return loading.model(open_run(key[0]), key[2]).head_weights()


def why_unknown(key: Key) -> str:
    """Why the weights of heads cannot be told apart; empty where they can."""
    try:
        weights(key)
    except ValueError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Composition:
    """What every head reads of every earlier one, and what random heads of the same shapes would read."""

    scores: dict[str, np.ndarray]
    """[layer1 head1 layer2 head2] by what is read: k, q or v."""
    mean: float
    sd: float
    blob: bytes

    def sharpest(self, into: str, head: Head) -> tuple[Head, float] | None:
        """The earlier head that this one reads most, and its score; None in the first layer."""
        return self._best(self.scores[into][(slice(None), slice(None), *head)])

    def widest(self, into: str, head: Head) -> tuple[Head, float] | None:
        """The later head that reads this one most, and its score; None in the last layer."""
        return self._best(self.scores[into][head])

    @staticmethod
    def _best(found: np.ndarray) -> tuple[Head, float] | None:
        if not np.isfinite(found).any():
            return None
        layer, head = np.unravel_index(int(np.nanargmax(found)), found.shape)
        return (int(layer), int(head)), float(found[layer, head])


def composition(key: Key, kinds: Sequence[Kind], progress: Progress) -> Composition:
    """Of these kinds."""
    from tracer.measures import composition

    def compare() -> Composition:
        found, scores = weights(key)[:4], {}
        for i, into in enumerate(kinds):
            told = lambda done, of, i=i: progress(i * of + done, len(kinds) * of)  # noqa: E731
            scores[into] = composition.composition(into, *found, told).numpy()
        mean, sd = composition.random_composition(*found[0].shape[2:])
        return Composition(scores, mean, sd, bipartite.pack(scores, mean, sd))

    return kept("composition", (key, *kinds), compare)


@dataclass(frozen=True)
class Copying:
    """How every head's OV circuit maps the vocabulary onto itself, and how random heads would."""

    scores: np.ndarray
    """[layer head]"""
    mean: float
    sd: float
    eigenvalues: np.ndarray
    """[layer head d_head]"""


@st.cache_data(max_entries=64, show_spinner="Reading the spectra …")
def copying(key: Key) -> Copying:
    from tracer.measures import composition

    W_V, W_O, W_E, W_U = weights(key)[2:]
    assert W_U is not None
    found = composition.eigenvalues(W_V, W_O, W_E, W_U)
    mean, sd = composition.random_copying(W_E, W_U, W_V.shape[-1])
    scores = (found.real.sum(-1) / found.abs().sum(-1)).numpy()
    return Copying(scores, mean, sd, found.numpy())


@dataclass(frozen=True)
class Words:
    """One head over the vocabulary; every list is of token ids with the value, the largest first."""

    moves: list[tuple[int, int, float]]
    """OV: the token that is looked at, and the one whose logit it raises."""
    copies: list[tuple[int, float]]
    """Tokens that raise themselves more than any other."""
    copied: float
    """Share of such tokens."""
    looks: list[tuple[int, int, float]]
    """QK: the token that looks, and the one it looks at."""


@st.cache_data(max_entries=64, show_spinner="Streaming the circuits over the vocabulary …")
def words(key: Key, head: Head) -> Words:
    import torch

    from tracer.analysis import token_circuits

    with torch.no_grad():
        who, whom, left, right = halves(key, head)
        moves, looks = token_circuits.largest(left, right, TOP), token_circuits.largest(who, whom, TOP)
        share, best = token_circuits.copied(left, right, TOP)
    copies = list(zip(best.rows.tolist(), best.values.tolist(), strict=True))
    return Words(_triples(moves), copies, share, _triples(looks))


def halves(key: Key, head: Head) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Those of a head's QK circuit, scaled, and of its OV circuit over the vocabulary.

    Norms are held at their mean scale.
    """
    from tracer.analysis import token_circuits

    W_Q, W_K, W_V, W_O, W_E, W_U = weights(key)
    assert W_U is not None
    layer, read, write = head[0], W_E, W_O[head]
    run = open_run(key[0])
    if not run.why_not("norm_scales"):
        own = f"blocks.{layer}.ln1"
        if run.why_not("recipe") or run.config.model.norm_position == "pre":
            read = norm_scales.through(key, own, W_E)
        else:
            write = norm_scales.through(key, own, write)
        write = norm_scales.through(key, "ln_final", write)
    who, whom = token_circuits.qk(read, W_Q[head], W_K[head])
    return who * _score_scale(key, layer), whom, *token_circuits.ov(read, W_V[head], write, W_U)


def _score_scale(key: Key, layer: int) -> float:
    """What q . k is multiplied by; 1 where a model by others does not show it."""
    import torch

    from tracer.heads.call import AttentionCall
    from tracer.interventions.edits import visiting

    found: dict[int, float] = {}

    def visit(call: AttentionCall) -> None:
        found[call.layer] = call.scale

    with torch.no_grad(), visiting(visit):
        loading.model(open_run(key[0]), key[2])(torch.zeros(1, 2, dtype=torch.int64))
    return found[layer]


def _triples(found: Entries) -> list[tuple[int, int, float]]:
    return list(zip(found.rows.tolist(), found.cols.tolist(), found.values.tolist(), strict=True))


@st.cache_data(max_entries=64, show_spinner=False)
def positions(key: Key, head: Head, longest: int, normed: bool) -> np.ndarray:
    """What one head attends to by positions alone [query_pos key_pos], of the first `longest`.

    `normed`: through the norm in front of its layer, held at its mean scale.
    """
    import torch

    from tracer.measures.composition import position_pattern

    layer, at = head
    with torch.no_grad():
        read = _positions(key)[:longest]
        if normed:
            read = norm_scales.through(key, f"blocks.{layer}.ln1", read)
        found = weights(key)
        scale = _score_scale(key, layer)
        return position_pattern(read, found.W_Q[layer, at], found.W_K[layer, at], scale).numpy()


def _positions(key: Key) -> Tensor:
    """The vectors that are added to the stream, or to what heads read, [pos d_model]."""
    import torch

    from tracer.model import Transformer

    model = norm_scales.model_of(key)
    if isinstance(model, Transformer):
        table = model.sinusoid if model.config.positions == "sinusoidal" else model.pos_embed.W_pos
        return table.detach()
    found = model.residual_stream(torch.zeros(1, min(model.n_ctx, MOST_POSITIONS), dtype=torch.int64)).pos_embed
    assert found is not None  # else run.why_not("positions") says so
    return found[0]


def means_of_positions(key: Key, head: Head, longest: int, normed: bool) -> Distances:
    """Those by distance of what one head attends to by positions alone."""
    from tracer.analysis.by_distance import distances

    return distances(positions(key, head, longest, normed), fewest=1)


@st.cache_data(max_entries=64, show_spinner="Measuring attention by distance …")
def stripes(key: Key) -> tuple[ByDistance, int]:
    """On two copies of random tokens, one right after the other, and their period.

    ValueError where the context or the vocabulary is too short.
    """
    from tracer.analysis.by_distance import by_distance
    from tracer.data.probes import repeated

    run = open_run(key[0])
    model = loading.model(run, key[2])
    most = max(1, min(LONGEST_PERIOD, (min(model.n_ctx, model.d_vocab) - 1) // 2))
    probe = repeated(model.d_vocab, model.n_ctx, run.about.bos or 0, at=most)
    return by_distance(model, probe.tokens), probe.period
