"""Where in a text does a head look most sharply? The passages, how common they are, and what stands at both ends.

1. Run the model over rows of text; of every attention row keep, for each kind of look, a score and a key (`search`).
2. Take a head's best looks, apart from each other (`strongest`), and one from each quarter of all (`typical`).
3. Run it once more and keep the attention of those rows alone (`attention`).

Source: top examples beside examples from quantiles, as Bricken et al. 2023 show features: maxima alone mislead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.config.field_docs import fields_in_help
from tracer.heads import masks
from tracer.heads.call import AttentionCall
from tracer.heads.definitions import pattern
from tracer.interventions.edits import visiting
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel

KINDS = ("sharpest", "induction", "previous_token", "farthest")
"""The largest share, the mass after earlier copies, the share of the token before, the largest share x distance."""
APART = 16
"""Tokens between two looks in one sequence, so that they are two passages."""
CONTEXT = 8
"""Tokens up to the query; where they are the same, so is the passage."""
SHARP = 0.1
"""The share of looks, the sharpest, whose tokens are counted."""
LOGITS = 2**26
"""Numbers that a model may give at once: 256 MB."""
TILE = 2**19
"""Attention weights that exist at once: 2 MB, and a few copies."""
TINY, FAINT = 1e-37, 1e-30
"""What a key of the right kind weighs at least, so that it is the largest; a score below the second number is 0."""

Pattern = Float[Tensor, "batch head rows key_pos"]
PerRow = Float[Tensor, "batch head rows"]
Keys = Int[Tensor, "batch head rows"]


def rows_of_text(n_ctx: int) -> int:
    """Rows of held-out text that are searched: 64, and fewer where the context is long (16,384 tokens at most)."""
    return max(1, min(64, 2**14 // n_ctx))


@fields_in_help
@dataclass(frozen=True)
class Search:
    """What every row of every head looks at, by kind of look."""

    tokens: Int[np.ndarray, "sequence pos"]
    """What was searched."""
    scores: dict[str, Float[np.ndarray, "layer head sequence pos"]]
    """nan in a row that has no key of that kind, and where a layer has fewer heads than others."""
    keys: dict[str, Int[np.ndarray, "layer head sequence pos"]]
    """The position that each score is attention to, by kind."""
    contexts: Int[np.ndarray, "sequence pos"]
    """Equal where the same tokens lead up to the query."""

    def looks(self, kind: str, head: Head) -> int:
        """How many rows of a head have a score."""
        return int(np.isfinite(self.scores[kind][head]).sum())

    def mean(self, kind: str, head: Head) -> float:
        """The mean score over those rows; nan where there is none."""
        scores = self.scores[kind][head]
        finite = scores[np.isfinite(scores)]
        return float(finite.mean(dtype=np.float64)) if finite.size else float("nan")


@fields_in_help
@dataclass(frozen=True)
class Hit:
    """One look: a query of a sequence and the key it goes to."""

    sequence: int
    """Row of the searched tokens."""
    query: int
    """Position that attends."""
    key: int
    """Position that is attended to."""
    score: float
    """Share of attention on it, or what its kind scores instead."""
    quantile: float
    """The share of this head's looks with a lower score."""


@fields_in_help
@dataclass(frozen=True)
class Count:
    """How often a token stands at one end of a look."""

    token: int
    """Its number."""
    count: int
    """Ends at which it stands."""
    share: float
    """Of all such ends."""
    usual: float
    """Its share of all searched tokens."""


@torch.no_grad()
def search(model: HeadModel, tokens: Int[Tensor, "sequence pos"]) -> Search:
    """The score and the key of every row of every head.

    Costs a forward pass, and 2 T^2 d_head + 12 T^2 FLOPs a head and sequence. Memory: 8 bytes for each kind, row and
    head, one layer's q and k, and a tile of attention; no pattern is kept.
    """
    found = _unseen(model.n_layers, model.n_heads, tokens.cpu().numpy())

    def see(call: AttentionCall, sequences: slice) -> None:
        batch, pos, _ = call.shape
        height = TILE // (batch * call.n_heads * pos)
        for start in range(0, pos, max(1, height)):
            rows = slice(start, min(start + max(1, height), pos))
            weights = call.pattern(rows)[..., : rows.stop if call.causal else pos]
            for kind, (score, key) in looks(weights, tokens[sequences], start, causal=call.causal).items():
                into = call.layer, call.heads, sequences, rows
                found.scores[kind][into] = rearrange(score, "batch head rows -> head batch rows").cpu()
                found.keys[kind][into] = rearrange(key, "batch head rows -> head batch rows").cpu()

    _by_layer(model, tokens, see)
    return found


def of_patterns(
    patterns: list[Float[np.ndarray, "layer head query_pos key_pos"]],
    tokens: Int[np.ndarray, "sequence pos"],
    causal: list[bool],
) -> Search:
    """The same of patterns that were kept, one for each sequence; nan where there is no head, or no more token."""
    n_layers, n_heads = patterns[0].shape[:2]
    found = _unseen(n_layers, n_heads, tokens)
    for sequence, (kept, row) in enumerate(zip(patterns, torch.from_numpy(tokens), strict=True)):
        weights, there = torch.from_numpy(np.nan_to_num(kept)), np.asarray(np.isfinite(kept).any(3))
        for layer, mask in enumerate(causal):
            for kind, (score, key) in looks(weights[layer : layer + 1], row[None], 0, causal=mask).items():
                found.scores[kind][layer, :, sequence] = np.where(there[layer], score[0], np.nan)
                found.keys[kind][layer, :, sequence] = key[0]
    return found


def _unseen(n_layers: int, n_heads: int, tokens: Int[np.ndarray, "sequence pos"]) -> Search:
    """No look yet."""
    shape = (n_layers, n_heads, *tokens.shape)
    scores = {kind: np.full(shape, np.nan, np.float32) for kind in KINDS}
    return Search(tokens, scores, {kind: np.zeros(shape, np.int32) for kind in KINDS}, contexts(tokens))


def looks(
    pattern: Pattern, tokens: Int[Tensor, "batch pos"], start: int, *, causal: bool = True
) -> dict[str, tuple[PerRow, Keys]]:
    """By kind, the score of each row from query `start` on, and its key; nan where no key is of that kind.

    Source: ours; "induction" is the mass of `tracer.heads.definitions.induction`. All kinds leave out the query itself
    and the first token, where heads rest.
    """
    rows, n_keys = pattern.shape[-2:]
    keys = torch.arange(n_keys, device=pattern.device)
    back = rearrange(torch.arange(start, start + rows, device=pattern.device), "rows -> rows 1") - keys
    other = (keys != 0) & (back > 0 if causal else back != 0)
    copies = (tokens[:, start : start + rows, None] == tokens[:, None, :n_keys]).tril(start - 1)
    after = torch.nn.functional.pad(copies, (1, 0))[:, None, :, :-1] & other
    shares = (pattern + TINY) * other.to(pattern.dtype)
    copied = shares * after.to(pattern.dtype)
    found = {
        "sharpest": _best(shares, other),
        "induction": (copied.sum(-1).masked_fill(~after.any(-1), float("nan")), largest_key(copied)),
        "previous_token": _best(shares * (back == 1), other & (back == 1)),
        "farthest": _best(shares * back.abs(), other),
    }
    return {kind: (score.masked_fill(score < FAINT, 0.0), key) for kind, (score, key) in found.items()}


def _best(weights: Pattern, allowed: Bool[Tensor, "rows key_pos"]) -> tuple[PerRow, Keys]:
    """The largest weight of each row, 0 wherever it is not allowed, and its key; nan in a row without any."""
    key = largest_key(weights)
    score = weights.gather(-1, key.unsqueeze(-1)).squeeze(-1)
    return score.masked_fill(~allowed.any(-1), float("nan")), key


def largest_key(weights: Pattern) -> Keys:
    if weights.device.type == "cpu":  # numpy takes a seventh of the time
        return torch.from_numpy(weights.numpy().argmax(-1))
    return weights.argmax(-1)


def contexts(tokens: Int[np.ndarray, "sequence pos"]) -> Int[np.ndarray, "sequence pos"]:
    """A number for each position, the same where the CONTEXT tokens up to it are the same."""
    padded = np.pad(tokens, np.array([(0, 0), (CONTEXT - 1, 0)]), constant_values=-1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, CONTEXT, axis=1)
    _, number = np.unique(windows.reshape(-1, CONTEXT), axis=0, return_inverse=True)
    return number.reshape(tokens.shape)


def strongest(
    found: Search, kind: str, head: Head, n: int = 12, apart: int = APART, last: Sequence[int] = ()
) -> list[Hit]:  # fmt: skip
    """The n looks with the highest scores: no two within `apart` tokens of one sequence, nor after the same tokens.

    Greedy: the best one, then the best of what it leaves; of equal scores the earlier one. Looks at tokens that are in
    `last` come after all others.
    """
    left = np.nan_to_num(found.scores[kind][head], nan=-np.inf)
    waits = np.isin(np.take_along_axis(found.tokens, found.keys[kind][head], 1), last)
    best = []
    for waiting in (False, True):
        while len(best) < n:
            sequence, query = divmod(int(np.where(waits == waiting, left, -np.inf).argmax()), left.shape[1])
            if waits[sequence, query] != waiting or left[sequence, query] <= 0:
                break
            best.append((sequence, query))
            left[sequence, max(0, query - apart) : query + apart + 1] = -np.inf
            left[found.contexts == found.contexts[sequence, query]] = -np.inf
    return _hits(found, kind, head, best)


def typical(found: Search, kind: str, head: Head, n: int = 4) -> list[Hit]:
    """One look from each n-th of all the head's looks by score, drawn at random (the same each time), best first."""
    scores = found.scores[kind][head].ravel()
    order = np.argsort(scores, kind="stable")[: np.isfinite(scores).sum()]
    rng = np.random.default_rng(head)
    parts = [part for part in np.array_split(order, n)[::-1] if part.size]
    drawn = [divmod(int(rng.choice(part)), found.tokens.shape[1]) for part in parts]
    return _hits(found, kind, head, drawn)


def _hits(found: Search, kind: str, head: Head, places: list[tuple[int, int]]) -> list[Hit]:
    scores, keys = found.scores[kind][head], found.keys[kind][head]
    ordered = np.sort(scores[np.isfinite(scores)])
    return [
        Hit(*at, int(keys[at]), float(scores[at]), float(np.searchsorted(ordered, scores[at]) / max(1, ordered.size)))
        for at in places
    ]


def ends(found: Search, kind: str, head: Head, n: int = 8) -> tuple[list[Count], list[Count], int]:
    """The tokens that look, and that are looked at, most often among the head's highest SHARP of scores; how many.

    Source: ours. Beside each share stands the token's share of the whole text: a token that is everywhere is no news.
    """
    scores = found.scores[kind][head]
    finite = int(np.isfinite(scores).sum())
    sharp = np.argsort(-scores.ravel(), kind="stable")[: int(np.ceil(SHARP * finite))]
    sequence, query = np.divmod(sharp, found.tokens.shape[1])
    key = found.keys[kind][head][sequence, query]
    return _counts(found, sequence, query, n), _counts(found, sequence, key, n), len(sharp)


def _counts(found: Search, sequence: np.ndarray, position: np.ndarray, n: int) -> list[Count]:
    tokens, counts = np.unique(found.tokens[sequence, position], return_counts=True)
    top = np.argsort(-counts, kind="stable")[:n]
    return [
        Count(int(t), int(c), float(c / len(position)), float((found.tokens == t).mean()))
        for t, c in zip(tokens[top], counts[top], strict=True)
    ]


@torch.no_grad()
def attention(
    model: HeadModel, tokens: Int[Tensor, "sequence pos"], places: Int[np.ndarray, "layer head look 2"]
) -> Float[np.ndarray, "layer head look key_pos"]:
    """The attention of some (sequence, query) of every head to all keys; nan where the sequence is -1.

    Costs a forward pass: of all rows only these are computed.
    """
    kept = np.full((*places.shape[:3], tokens.shape[1]), np.nan, np.float32)

    def see(call: AttentionCall, sequences: slice) -> None:
        sequence, query = np.moveaxis(places[call.layer, call.heads], -1, 0)
        head, look = np.nonzero((sequence >= sequences.start) & (sequence < sequences.stop))
        at = sequence[head, look] - sequences.start, head, query[head, look]
        kept[call.layer, call.first_head + head, look] = _rows(call, *map(torch.from_numpy, at)).cpu()

    _by_layer(model, tokens, see)
    return kept


def _rows(
    call: AttentionCall, sequence: Int[Tensor, " look"], head: Int[Tensor, " look"], query: Int[Tensor, " look"]
) -> Float[Tensor, "look key_pos"]:
    """Some rows of a call's attention: each is a sequence of one query, for one head."""
    if call.weights is not None:
        return call.weights[sequence, head, query, : call.positions]
    assert call.q is not None and call.k is not None
    shared = head // (call.n_heads // call.k.shape[2])
    mask = rearrange(query, "look -> look 1") >= torch.arange(call.shape[2]) if call.causal else None
    if call.mask is not None:
        own = call.mask.expand(call.shape[0], call.n_heads, *call.shape[1:])[sequence, head, query]
        mask = own if mask is None else masks.both(own, mask)
    return pattern(
        call.q[sequence, query, head][:, None, None], call.k[sequence, :, shared][:, :, None], scale=call.scale,
        causal=False, mask=None if mask is None else mask[:, None, None],
    )[:, 0, 0]  # fmt: skip


def _by_layer(
    model: HeadModel, tokens: Int[Tensor, "sequence pos"], see: Callable[[AttentionCall, slice], None]
) -> None:
    """Show every layer's attention, some sequences at once."""
    n, pos = tokens.shape
    at_once = max(1, LOGITS // (model.d_vocab * pos))
    for first in range(0, n, at_once):
        sequences = slice(first, min(first + at_once, n))

        def visit(call: AttentionCall, sequences: slice = sequences) -> None:
            if call.shape[1] == call.positions:  # cross attention looks at something else than these tokens
                see(replace(call, weights=call.pattern()) if call.extra else call, sequences)  # whole, but once

        with visiting(visit):
            model(tokens[sequences])
