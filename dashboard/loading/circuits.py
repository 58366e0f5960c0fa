"""Cached readings of a model's weights, and of what its parts add to a logit; the computing is `tracer`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import ablating
from tracer.pictures import bipartite, spectrum
from tracer.store import Run, open_run

if TYPE_CHECKING:
    from torch import Tensor

    from tracer.adapters.weights import HeadWeights
    from tracer.model import Transformer
    from tracer.vocabulary import Entries

Head = tuple[int, int]
Key = tuple[str, str, int]
"""Directory, created, step."""
INTO = ("k", "q", "v")
TOP = 12
FEWEST = 8
"""Rows of a pattern that a mean over a distance is taken of, at least."""
AT_ONCE = 2**25
"""Entries of a circuit over the vocabulary that are streamed unasked: about half a second."""


def key_of(run: Run, step: int) -> Key:
    return str(run.dir.resolve()), run.meta["created"], step


def _model(key: Key) -> Transformer:
    from tracer.model import Transformer

    model = loading.model(open_run(key[0]), key[2])
    assert isinstance(model, Transformer)
    return model


@st.cache_resource(max_entries=4, show_spinner="Reading the weights of every head …")
def _weights(key: Key) -> HeadWeights:
    """Of our models and of others; ValueError where heads cannot be told apart."""
    import torch

    from tracer.adapters.foreign import Foreign
    from tracer.adapters.weights import HeadWeights, head_weights

    model = loading.model(open_run(key[0]), key[2])
    if isinstance(model, Foreign):
        return head_weights(model)
    ours = _model(key)
    W_Q, W_K, W_V, W_O = (
        torch.stack([getattr(block.attn, name).detach() for block in ours.blocks])
        for name in ("W_Q", "W_K", "W_V", "W_O")
    )
    W_E = ours.embed.W_E.detach()
    W_U = W_E.T if ours.config.unembed_hidden else ours.W_U.detach()  # nobody asks for that of an MLP
    return HeadWeights(W_Q, W_K, W_V, W_O, W_E, W_U)


def why_unknown(key: Key) -> str:
    """Why the weights of heads cannot be told apart; empty where they can."""
    try:
        _weights(key)
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


@st.cache_data(max_entries=64, show_spinner="Comparing every pair of heads …")
def composition(key: Key) -> Composition:
    from tracer import circuits

    weights = _weights(key)
    scores = {into: circuits.composition(into, *weights[:4]).numpy() for into in INTO}
    mean, sd = circuits.random_composition(*weights.W_Q.shape[2:])
    return Composition(scores, mean, sd, bipartite.bipartite(scores, mean, sd))


@dataclass(frozen=True)
class Copying:
    """How every head's OV circuit maps the vocabulary onto itself, and how random heads would."""

    scores: np.ndarray
    """[layer head]"""
    mean: float
    sd: float
    blob: bytes


@st.cache_data(max_entries=64, show_spinner="Reading the spectra …")
def copying(key: Key) -> Copying:
    from tracer import circuits

    W_V, W_O, W_E, W_U = _weights(key)[2:]
    found = circuits.eigenvalues(W_V, W_O, W_E, W_U)
    mean, sd = circuits.random_copying(W_E, W_U, W_V.shape[-1])
    scores = (found.real.sum(-1) / found.abs().sum(-1)).numpy()
    return Copying(scores, mean, sd, spectrum.spectrum(found.numpy()))


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
    trigrams: list[tuple[int, int, int]]
    """A, B, C of "A ... B, then C": B looks at A, and A raises C."""


@st.cache_data(max_entries=64, show_spinner="Streaming the circuits over the vocabulary …")
def words(key: Key, head: Head) -> Words:
    import torch

    from tracer import vocabulary

    W_Q, W_K, W_V, W_O, W_E, W_U = _weights(key)
    with torch.no_grad():
        left, right = vocabulary.ov(W_E, W_V[head], W_O[head], W_U)
        who, whom = vocabulary.qk(W_E, W_Q[head], W_K[head])
        whom = whom * _scale(key, head[0])
        moves, looks = vocabulary.largest(left, right, TOP), vocabulary.largest(who, whom, TOP)
        first = vocabulary.own_rank(left, right) == 0
        own = (left * right.T).sum(1).where(first, -torch.inf)
        best, ids = own.topk(min(TOP, int(first.sum())))
        raised, _ = vocabulary.of_rows(left, right, looks.cols, 1)
    return Words(
        _triples(moves), list(zip(ids.tolist(), best.tolist(), strict=True)), float(first.float().mean()),
        _triples(looks), list(zip(looks.cols.tolist(), looks.rows.tolist(), raised[:, 0].tolist(), strict=True)),
    )  # fmt: skip


def _scale(key: Key, layer: int) -> float:
    """What q . k is multiplied by; 1 where a model by others does not show it."""
    import torch

    from tracer.edits import visiting
    from tracer.heads.call import AttentionCall

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

    `normed`: through the norm in front of its layer, as if nothing else were in the stream.
    """
    import torch

    from tracer.circuits import position_pattern

    model, (layer, at) = _model(key), head
    table = model.sinusoid if model.config.positions == "sinusoidal" else model.pos_embed.W_pos
    block = model.blocks[layer]
    with torch.no_grad():
        read = table.detach()[:longest]
        if normed and block.ln1 is not None:
            read = block.ln1(read[None])[0]
        return position_pattern(read, block.attn.W_Q[at], block.attn.W_K[at], model.config.scale).numpy()


@dataclass(frozen=True)
class Stripes:
    """Mean attention by distance on repeated random tokens, the start token left out: heads rest on it."""

    values: np.ndarray
    """[layer head offset]; nan where a layer has fewer heads than others."""
    period: int
    uniform: np.ndarray
    """The same of heads that attend evenly [offset]."""


@st.cache_data(max_entries=64, show_spinner="Measuring attention by distance …")
def stripes(key: Key) -> Stripes:
    import torch

    from tracer.edits import visiting
    from tracer.heads.call import AttentionCall

    model, probe = loading.model(open_run(key[0]), key[2]), ablating.batches(*key[:2]).repeat
    n = probe.tokens.shape[1] - FEWEST
    found = np.full((model.n_layers, model.n_heads, n), np.nan)

    def visit(call: AttentionCall) -> None:
        heads = slice(call.first_head, call.first_head + call.n_heads)
        found[call.layer, heads] = _by_distance(call.pattern()).mean(0).numpy()

    with torch.no_grad(), visiting(visit):
        model(probe.tokens)
    even = torch.ones(probe.tokens.shape[1], probe.tokens.shape[1]).tril()
    return Stripes(found, probe.period or 0, _by_distance(even / even.sum(1, keepdim=True)).numpy())


def _by_distance(pattern: Tensor) -> Tensor:
    """[... offset], each over at least FEWEST rows."""
    from tracer.heads import attention_by_offset

    return attention_by_offset(pattern[..., 1:, 1:])[..., : pattern.shape[-1] - FEWEST]


@dataclass(frozen=True)
class Parts:
    """What each part of the model adds to the logit of the next token, above the mean logit, at every position."""

    targets: list[int]
    """The token that follows; after the last one, the token that the model thinks likeliest."""
    embed: np.ndarray
    """[pos], as `biases` and `logit`"""
    heads: np.ndarray
    """[layer head pos]"""
    mlps: np.ndarray
    """[layer pos]"""
    biases: np.ndarray
    logit: np.ndarray


@st.cache_data(max_entries=64, show_spinner=False)
def parts_of_logit(key: Key, tokens: tuple[int, ...]) -> Parts:
    """ValueError where the logit is no sum of parts."""
    from tracer.attribution import logit_attribution

    model, (read, targets) = _model(key), _read(key, tokens)
    found = logit_attribution(model, read, targets)
    arrays = (x.numpy()[..., 0, :] for x in (found.embed, found.heads, found.mlps, found.biases, found.logit))
    return Parts(targets[0].tolist(), *arrays)


@st.cache_data(max_entries=64, show_spinner=False)
def lens(key: Key, tokens: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """log p and rank of the next token if the model stopped before each layer and at its end, [layer1 pos]."""
    from tracer.attribution import logit_lens

    log_p, ranks = logit_lens(_model(key), *_read(key, tokens))
    return log_p[:, 0].numpy(), ranks[:, 0].numpy()


def _read(key: Key, tokens: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The prompt, and what follows each of its tokens [1 pos]."""
    import torch

    read = torch.tensor([tokens])
    with torch.no_grad():
        likeliest = _model(key)(read)[:, -1:].argmax(-1)
    return read, torch.cat([read[:, 1:], likeliest], 1)
