"""Cached readings of the weights of heads; the computing is `tracer`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import head_scores, norm_scales
from dashboard.loading.kept import OF_A_STEP, kept, of_run
from tracer.measures.aliases import Head, Progress
from tracer.pictures import bipartite
from tracer.store import Run

if TYPE_CHECKING:
    from torch import Tensor

    from tracer.analysis.by_distance import ByDistance, Distances
    from tracer.analysis.token_circuits import Entries
    from tracer.model.protocol import HeadWeights

Kind = Literal["k", "q", "v"]
TOP = 12
LONGEST_PERIOD = 25
"""Tokens that stand twice for the attention by distance, as in Olsson et al. 2022."""
MOST_POSITIONS = 1024
"""Of others' models, whose contexts may be long."""
AT_ONCE = 2**25
"""Entries of a circuit over the vocabulary that are streamed unasked: about half a second."""


@st.cache_resource(max_entries=4, show_spinner="Reading the weights of every head …", hash_funcs=OF_A_STEP)
def weights(run: Run, step: int) -> HeadWeights:
    """Of our models and of others; ValueError where heads cannot be told apart."""
    return loading.model(run, step).head_weights()


def why_unknown(run: Run, step: int) -> str:
    """Why the weights of heads cannot be told apart; empty where they can."""
    try:
        weights(run, step)
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
    edge: float
    """The score above which a pair stands out, corrected for `pairs`."""
    pairs: int
    """That are compared, for keys, queries and values together."""
    blob: bytes

    def sharpest(self, into: str, head: Head) -> tuple[Head, float] | None:
        """The earlier head that this one reads most, and its score; None in the first layer."""
        return self._best(self.scores[into][:, :, *head])

    def widest(self, into: str, head: Head) -> tuple[Head, float] | None:
        """The later head that reads this one most, and its score; None in the last layer."""
        return self._best(self.scores[into][head])

    def strongest(self, into: str) -> tuple[Head, Head, float] | None:
        """The reader, what it reads, and the score of the highest pair; None where no pair has one."""
        scores = self.scores[into]
        if not np.isfinite(scores).any():
            return None
        *read, layer, at = (int(i) for i in np.unravel_index(int(np.nanargmax(scores)), scores.shape))
        return (layer, at), (read[0], read[1]), float(scores[(*read, layer, at)])

    @staticmethod
    def _best(found: np.ndarray) -> tuple[Head, float] | None:
        best = head_scores.top_head(found)
        return best and (best, float(found[best]))


def composition(run: Run, step: int, kinds: Sequence[Kind], progress: Progress) -> Composition:
    """Of these kinds."""
    from tracer.measures import composition

    def compare() -> Composition:
        (W_Q, W_K, W_V, W_O), scores = weights(run, step)[:4], {}
        for i, into in enumerate(kinds):
            told = lambda done, of, i=i: progress(i * of + done, len(kinds) * of)  # noqa: E731
            scores[into] = composition.composition(into, W_Q, W_K, W_V, W_O, told).numpy()
        n_layers, n_heads, d_model, d_head = W_Q.shape
        pairs = len(get_args(Kind)) * n_heads**2 * n_layers * (n_layers - 1) // 2
        mean, sd = composition.random_composition(d_model, d_head)
        edge = composition.stands_out(d_model, d_head, max(1, pairs))
        return Composition(scores, mean, sd, edge, pairs, bipartite.pack(scores, mean, sd, edge))

    return kept("composition", (*of_run(run), step, *kinds), compare)


@dataclass(frozen=True)
class Copying:
    """How every head's OV circuit maps the vocabulary onto itself, and how random heads would."""

    scores: np.ndarray
    """[layer head]"""
    mean: float
    sd: float
    eigenvalues: np.ndarray
    """[layer head d_head]"""


@st.cache_data(max_entries=64, show_spinner="Reading the spectra …", hash_funcs=OF_A_STEP)
def copying(run: Run, step: int) -> Copying:
    from tracer.measures import composition

    W_V, W_O, W_E, W_U = weights(run, step)[2:]
    assert W_U is not None
    found = composition.eigenvalues(W_V, W_O, W_E, W_U)
    mean, sd = composition.random_copying(W_E, W_U, W_V.shape[-1])
    scores = (found.real.sum(-1) / found.abs().sum(-1)).numpy()
    return Copying(scores, mean, sd, found.numpy())


@dataclass(frozen=True)
class HeadVocabulary:
    """One head over the vocabulary; every list is of token ids with the value, the largest first."""

    moves: list[tuple[int, int, float]]
    """OV: the token that is looked at, and another whose logit it raises."""
    copies: list[tuple[int, float]]
    """Tokens that raise themselves more than any other."""
    copied: float
    """Share of such tokens."""
    looks: list[tuple[int, int, float]]
    """QK: the token that looks, and the one it looks at."""


@st.cache_data(max_entries=64, show_spinner="Streaming the circuits over the vocabulary …", hash_funcs=OF_A_STEP)
def words(run: Run, step: int, head: Head) -> HeadVocabulary:
    import torch

    from tracer.analysis import token_circuits

    with torch.no_grad():
        who, whom, left, right = halves(run, step, head)
        moves, looks = token_circuits.largest(left, right, TOP, apart=True), token_circuits.largest(who, whom, TOP)
        share, best = token_circuits.copied(left, right, TOP)
    copies = list(zip(best.rows.tolist(), best.values.tolist(), strict=True))
    return HeadVocabulary(_triples(moves), copies, share, _triples(looks))


def halves(run: Run, step: int, head: Head) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Those of a head's QK circuit, scaled, and of its OV circuit over the vocabulary.

    Norms are held at their mean scale.
    """
    from tracer.analysis import token_circuits

    W_Q, W_K, W_V, W_O, W_E, W_U = weights(run, step)
    assert W_U is not None
    layer, read, write = head[0], W_E, W_O[head]
    if run.can("norm_scales"):
        own = f"blocks.{layer}.ln1"
        if run.why_not("recipe") or run.config.model.norm_position == "pre":
            read = norm_scales.through(run, step, own, W_E)
        else:
            write = norm_scales.through(run, step, own, write)
        write = norm_scales.through(run, step, "ln_final", write)
    who, whom = token_circuits.qk(read, W_Q[head], W_K[head])
    return who * _score_scale(run, step, layer), whom, *token_circuits.ov(read, W_V[head], write, W_U)


def _score_scale(run: Run, step: int, layer: int) -> float:
    """What q . k is multiplied by; 1 where a model by others does not show it."""
    import torch

    from tracer.heads.call import AttentionCall
    from tracer.interventions.edits import visiting

    found: dict[int, float] = {}

    def visit(call: AttentionCall) -> None:
        found[call.layer] = call.scale

    with torch.no_grad(), visiting(visit):
        loading.model(run, step)(torch.zeros(1, 2, dtype=torch.int64))
    return found[layer]


def _triples(found: Entries) -> list[tuple[int, int, float]]:
    return list(zip(found.rows.tolist(), found.cols.tolist(), found.values.tolist(), strict=True))


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=OF_A_STEP)
def positions(run: Run, step: int, head: Head, longest: int, normed: bool) -> np.ndarray:
    """What one head attends to by positions alone [query_pos key_pos], of the first `longest`.

    `normed`: through the norm in front of its layer, held at its mean scale.
    """
    import torch

    from tracer.measures.composition import position_pattern

    layer, at = head
    with torch.no_grad():
        read = _positions(run, step)[:longest]
        if normed:
            read = norm_scales.through(run, step, f"blocks.{layer}.ln1", read)
        found = weights(run, step)
        scale = _score_scale(run, step, layer)
        return position_pattern(read, found.W_Q[layer, at], found.W_K[layer, at], scale).numpy()


def _positions(run: Run, step: int) -> Tensor:
    """The vectors that are added to the stream, or to what heads read, [pos d_model]."""
    import torch

    from tracer.model import Transformer

    model = loading.model(run, step)
    if isinstance(model, Transformer):
        table = model.sinusoid if model.config.positions == "sinusoidal" else model.pos_embed.W_pos
        return table.detach()
    found = model.residual_stream(torch.zeros(1, min(model.n_ctx, MOST_POSITIONS), dtype=torch.int64)).pos_embed
    assert found is not None  # else run.why_not("positions") says so
    (vectors,) = found
    return vectors


@st.cache_data(max_entries=64, show_spinner="Measuring attention by distance …", hash_funcs=OF_A_STEP)
def stripes(run: Run, step: int, off: tuple[Head, ...] = ()) -> tuple[ByDistance, int]:
    """On two copies of random tokens, one right after the other, and their period; with some heads `off`.

    ValueError where the context or the vocabulary is too short.
    """
    from tracer.ablate.planner import zeroed
    from tracer.analysis.by_distance import by_distance
    from tracer.data.probes import repeated

    model = loading.model(run, step)
    most = max(1, min(LONGEST_PERIOD, (min(model.n_ctx, model.d_vocab) - 1) // 2))
    probe = repeated(model.d_vocab, model.n_ctx, run.about.bos or 0, at=most)
    with zeroed(model, probe.tokens, off):
        return by_distance(model, probe.tokens), probe.period


@dataclass(frozen=True)
class Trigram:
    """A ... B, then C, as token ids; B and C the best first."""

    source: int
    looks: list[int]
    raises: list[int]
    value: float
    """What the first B and the first C make, in logits above the mean."""
    share: float
    """What A gets of the attention of the first B."""


@st.cache_data(max_entries=64, show_spinner="Streaming the skip-trigrams …", hash_funcs=OF_A_STEP)
def trigrams(run: Run, step: int, head: Head, places: tuple[float, ...]) -> list[list[Trigram]]:
    """The strongest, the largest first, for each share that the place of A would get by itself."""
    import torch

    from tracer.analysis.skip_trigrams import sources, strongest

    with torch.no_grad():
        found = sources(*halves(run, step, head))
    lists = []
    for place in places:
        best = strongest(found, place, TOP)
        lists.append([
            Trigram(source, looks, raises, value, share)
            for source, looks, raises, value, share in zip(
                best.sources.tolist(), best.looks.tolist(), best.raises.tolist(), best.values.tolist(),
                best.shares[:, 0].tolist(), strict=True,
            )
        ])  # fmt: skip
    return lists


def distances(run: Run, step: int, head: Head, longest: int, normed: bool) -> Distances | None:
    """Of what the positions alone attend to; None where there are too few positions."""
    from tracer.analysis.by_distance import FEWEST, distances

    return distances(positions(run, step, head, longest, normed)) if longest > FEWEST else None


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=OF_A_STEP)
def seen(run: Run, step: int, head: Head, distance: int) -> float:
    """What the head really gives to the token so many before, on average over held-out text."""
    import torch

    from tracer.interventions.edits import recording
    from tracer.interventions.replacements import pattern_tap

    tap = pattern_tap(head[0])
    with torch.no_grad(), recording(tap) as found:
        loading.model(run, step)(norm_scales.reading(run, step))
    return float(found[tap][:, head[1]].diagonal(-distance, dim1=-2, dim2=-1).mean())


@dataclass(frozen=True)
class LogitParts:
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


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=OF_A_STEP)
def parts_of_logit(run: Run, step: int, tokens: tuple[int, ...], off: tuple[Head, ...] = ()) -> LogitParts:
    """With some heads `off`. ValueError where the logit is no sum of parts."""
    import torch

    from tracer.ablate.planner import zeroed
    from tracer.analysis.logit_attribution import logit_attribution

    model, row = loading.model(run, step), torch.tensor([tokens])
    with zeroed(model, row, off):
        found = logit_attribution(model, row).squeeze("batch")
    arrays = (found[name].values for name in ("embed", "heads", "mlps", "biases", "logit"))
    return LogitParts(found.target.values.tolist(), *arrays)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=OF_A_STEP)
def lens(
    run: Run, step: int, tokens: tuple[int, ...], position: int, off: tuple[Head, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """log p and rank of the next token at a position if the model stopped before each layer and at its end, [layer1].

    With some heads `off`.
    """
    import torch

    from tracer.ablate.planner import zeroed
    from tracer.analysis.logit_attribution import logit_lens

    model, row = loading.model(run, step), torch.tensor([tokens])
    with zeroed(model, row, off):
        found = logit_lens(model, row, positions=[position]).squeeze(["batch", "pos"])
    return found.log_p.values, found["rank"].values
