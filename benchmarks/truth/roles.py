"""Roles of heads: heads that look by position alone, heads that look for a token, and models that learned nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from benchmarks.truth.attack import Attack
from tracer.analysis.head_roles import ROLES, roles_in
from tracer.data.probes import ProbeR, repeated
from tracer.heads import probe_errors, probe_scores
from tracer.heads.blocks import HeadStats
from tracer.heads.explicit import stats_from_pattern
from tracer.interventions.edits import recording
from tracer.measures import HEAD, MEASURES, SEQUENCES, Setting, farthest
from tracer.model import Transformer
from tracer.presets import preset

D_VOCAB, N_CTX, UNTRAINED = 512, 64, 20
Looks = Callable[[Tensor], Tensor]
"""From tokens [row pos] to weights [row query_pos key_pos]."""
SEEN = torch.ones(N_CTX, N_CTX, dtype=torch.double).tril()


def attacks() -> Iterator[Attack]:
    probe = repeated(D_VOCAB, N_CTX)
    yield _by_position(probe)
    yield _by_content(probe)
    yield _untrained(probe)


def _by_position(probe: ProbeR) -> Attack:
    """What each should be called: nothing but one of the roles of a place, and that where its share is .4.

    A window of two is two places, of more it is none.
    """
    heads: list[tuple[Looks, set[str]]] = []
    last = farthest(probe.tokens.shape[1])
    places = {0: {"current_token"}, 1: {"previous_token"}} | {d: {"fixed_distance"} for d in range(2, last + 1)}
    for distance in range(probe.tokens.shape[1]):
        heads.append((_fixed(distance), places.get(distance, set())))
    for distance, called in places.items():
        for share in (0.1, 0.3, 0.45, 0.7):  # the rest on the first token, as heads rest
            rests = {"first_token"} if share < 0.6 else set()
            heads.append((_fixed(distance, share), rests | (called if share > 0.4 else set())))
    for first in range(2, last):
        heads.append((_window(2, first), {"fixed_distance"}))
        heads += [(_window(width, first), set()) for width in (3, 4, 6, 10, 20, 40)]
    for width in range(1, N_CTX):
        inside = {"current_token"} if width == 1 else {"current_token", "previous_token"} if width == 2 else set()
        heads.append((_window(width), inside))
    for share in (0.1, 0.3, 0.45, 0.7, 1.0):
        heads.append((_sink(share), {"first_token"} if share > 0.4 else set()))
    drawn = torch.Generator().manual_seed(0)
    heads += [(_drawn(drawn), set()) for _ in range(200)]
    found = _called(probe, [looks for looks, _ in heads])
    wrong = sum(got != expected for got, (_, expected) in zip(found, heads, strict=True))
    return Attack(
        "a head that looks by position is called by its place, 2 to 16 back too, and by no role of content",
        "Heads, Circuits, tracer.roles",
        f"{len(heads)} heads built by hand: every fixed distance, with the rest on the first token too, every "
        "window, some of them from farther back, shares on the first token, and patterns drawn at random, the same in "
        "every row", f"{wrong} are called wrongly", not wrong,
    )  # fmt: skip


def _by_content(probe: ProbeR) -> Attack:
    """A share goes to the earlier copy, or to what followed it; the rest is spread evenly."""
    shares = np.arange(0.1, 1.01, 0.1)
    heads = [_copy(share, after) for after in (0, 1) for share in shares]
    found = _called(probe, heads)
    names = [name for name in ("duplicate_token", "induction") for _ in shares]
    wrong = sum(
        (name in got) != (share > 0.39) or bool(got & {"duplicate_token", "induction"} - {name})
        for got, name, share in zip(found, names, [*shares, *shares], strict=True)
    )
    return Attack(
        "duplicate token and induction are told apart, from a score of 0.4 on", "Heads, Circuits, tracer.roles",
        f"{len(heads)} heads built by hand that give 10 % to 100 % to the earlier copy, or to the token after it",
        f"{wrong} are called wrongly", not wrong,
    )  # fmt: skip


def _untrained(probe: ProbeR) -> Attack:
    config, called, count = preset("demo").config.model, 0, 0
    for seed in range(UNTRAINED):
        torch.manual_seed(seed)
        model = Transformer(replace(config, n_ctx=N_CTX, d_vocab=D_VOCAB))
        for layer in range(model.n_layers):
            name = f"blocks.{layer}.attn.hook_pattern"

            def looks(tokens: Tensor, name: str = name, model: Transformer = model) -> Tensor:
                with torch.no_grad(), recording(name) as seen:
                    model(tokens)
                return seen[name].double()

            found = _called(probe, [looks], whole=True)
            called, count = called + sum(map(bool, found)), count + len(found)
    return Attack(
        "a model that learned nothing has no head with a role", "Heads, Circuits, tracer.roles",
        f"{UNTRAINED} models of the demo before training", f"{called} of {count} heads have one", not called,
    )  # fmt: skip


def _called(probe: ProbeR, heads: Sequence[Looks], whole: bool = False) -> list[set[str]]:
    """The roles of each head; `whole`: the one function gives all heads [row head query_pos key_pos]."""

    def stats(tokens: Tensor, keys: Tensor | None) -> HeadStats:
        patterns = heads[0](tokens) if whole else torch.stack([looks(tokens) for looks in heads], 1)
        return stats_from_pattern(patterns, keys, causal=True)

    width = probe.tokens.shape[1]
    text = torch.from_numpy(np.random.default_rng(1).zipf(1.3, (32, width)) % D_VOCAB)
    of = stats(text, None), stats(probe.tokens, probe.tokens), stats(probe.control, probe.tokens)
    setting = Setting.of(D_VOCAB, width)
    found = {
        name: xr.DataArray(
            values.numpy()[None, None], dims=HEAD,
            attrs=MEASURES[name].attributes(setting) if name in MEASURES else {SEQUENCES: 32},
        )
        for name, values in {**probe_scores(*of, probe.second_copy), **probe_errors(*of, probe.second_copy)}.items()
    }  # fmt: skip
    of_heads = roles_in(xr.Dataset(found, coords={"step": [0]}), None, ROLES)
    assert not of_heads.not_recorded
    n = next(iter(found.values())).sizes["head"]
    return [{one.role.name for one in of_heads.heads.get((0, i), ())} for i in range(n)]


def _even(tokens: Tensor) -> Tensor:
    """Uniform attention [1 query_pos key_pos]."""
    seen = SEEN[: tokens.shape[1], : tokens.shape[1]]
    return (seen / seen.sum(1, keepdim=True)).expand(len(tokens), -1, -1).clone()


def _fixed(distance: int, share: float = 1.0) -> Looks:
    """`share` on the token so far back, the rest on the first."""

    def looks(tokens: Tensor) -> Tensor:
        weights, rows = _even(tokens), torch.arange(distance, tokens.shape[1])
        weights[:, rows] = 0
        weights[:, rows, 0] = 1 - share
        weights[:, rows, rows - distance] += share
        return weights

    return looks


def _window(width: int, first: int = 0) -> Looks:
    """Evenly on as many tokens, the nearest of them `first` back; on all where there is none."""

    def looks(tokens: Tensor) -> Tensor:
        weights = _even(tokens).gt(0).double().triu(1 - width - first).tril(-first)
        total = weights.sum(-1, keepdim=True)
        return torch.where(total > 0, weights / total.clamp(min=1), _even(tokens))

    return looks


def _sink(share: float) -> Looks:
    def looks(tokens: Tensor) -> Tensor:
        weights = (1 - share) * _even(tokens)
        weights[..., 0] += share
        return weights

    return looks


def _drawn(drawn: torch.Generator) -> Looks:
    scores = 2 * torch.randn(N_CTX, N_CTX, generator=drawn, dtype=torch.double)

    def looks(tokens: Tensor) -> Tensor:
        n = tokens.shape[1]
        hidden = SEEN[:n, :n] == 0
        return scores[:n, :n].masked_fill(hidden, -torch.inf).softmax(-1).expand(len(tokens), -1, -1)

    return looks


def _copy(share: float, after: int) -> Looks:
    """`share` on the earlier copy of the query's token, or `after` tokens later; evenly where there is none."""

    def looks(tokens: Tensor) -> Tensor:
        same = (tokens[:, :, None] == tokens[:, None, :]).double().tril(-1)
        there = torch.roll(same, after, -1).tril() if after else same
        there[..., :after] = 0
        total = there.sum(-1, keepdim=True)
        return torch.where(total > 0, (1 - share) * _even(tokens) + share * there / total.clamp(min=1), _even(tokens))

    return looks
