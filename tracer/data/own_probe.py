"""A probe of one's own: fixed rows of tokens, and which key each query should find there.

    tracer.Probe(tokens, targets={"name mover": [(14, 2), (14, 4)]})    # of each sequence: query, key

Its scores are measures of rows, as a user's are (`tracer.heads.own_measures`): the weight on the key that is named, a
mean over the queries that have one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.config.field_docs import fields_in_help
from tracer.data.probes import per_token_loss
from tracer.heads.own_measures import Measures, OwnMeasure, OwnMeasures, checked_name, given
from tracer.measures import HEAD, PROBES, Measure
from tracer.measures.described import always
from tracer.named_code import name_of, named

if TYPE_CHECKING:
    from tracer.heads.row_block import RowBlock

MOST_TOKENS = 2**20
"""Of a probe: it is run at every record."""
Pairs = Int[Tensor, "pair sequence_query_key"]


@fields_in_help
@dataclass(frozen=True, eq=False)
class Probe:
    """Rows of tokens that every record is measured on, and scores of heads on them.

    A score is the weight on the key that a query should find, summed where a query has several, a mean over the queries
    that have one; it is 1 for a head that looks nowhere else. The loss on these rows is recorded too, where every token
    has logits. ValueError for what does not fit.
    """

    tokens: Any
    """Ids [batch pos], numbers or a tensor."""
    targets: Mapping[str, Any] = field(default_factory=dict)
    """By the name of a score, which key a query should find: (query, key) of each sequence, in order, or any number of
    (sequence, query, key)."""

    def __post_init__(self) -> None:
        tokens = torch.as_tensor(self.tokens)
        if tokens.ndim != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool or not tokens.numel():
            raise ValueError(
                f"tokens of a probe are whole numbers [batch pos], not {tokens.dtype} {list(tokens.shape)}"
            )
        if tokens.numel() > MOST_TOKENS:
            raise ValueError(f"a probe of {tokens.numel():,} tokens is more than {MOST_TOKENS:,}: give fewer rows")
        if int(tokens.min()) < 0:
            raise ValueError(f"tokens of a probe are ids from 0 on: there is {int(tokens.min())}")
        tokens = tokens.detach().cpu().long()
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "targets", {name: _pairs(name, x, tokens) for name, x in self.targets.items()})

    @property
    def digest(self) -> str:
        """Of tokens and targets: a run that goes on is measured on the same."""
        found = hashlib.sha256(f"{list(self.tokens.shape)}".encode() + self.tokens.numpy().tobytes())
        for name, pairs in self.targets.items():
            found.update(name.encode() + pairs.numpy().tobytes())
        return found.hexdigest()[:16]

    def fitting(self, probe: str, d_vocab: int, n_ctx: int | None) -> Int[Tensor, "batch pos"]:
        """The tokens, for a model of this vocabulary and context. ValueError where they are too many or too large."""
        if n_ctx is not None and self.tokens.shape[1] > n_ctx:
            raise ValueError(f"the probe {probe} has rows of {self.tokens.shape[1]} tokens, the model takes {n_ctx}")
        if int(self.tokens.max()) >= d_vocab:
            raise ValueError(
                f"the probe {probe} has token {int(self.tokens.max())}, the model knows 0 to {d_vocab - 1}"
            )
        return self.tokens

    def scores(self, probe: str) -> list[OwnMeasure]:
        """One measure for each name of `targets`: `<probe>_<name>`."""
        found = []
        for name, pairs in self.targets.items():
            slug = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
            queries = len(torch.unique(pairs[:, :2], dim=0))
            uniform = float((1 / (pairs[:, 1].double() + 1)).sum()) / queries
            row = Measure(
                name=checked_name(f"{probe}_{slug}", "target"), label=f"{name[:1].upper()}{name[1:]} on {probe}",
                short=slug[:8],
                formula="sum of A_qk over the keys that a query should find, mean over the queries that have one",
                source=f"targets of the probe {probe}", probe=probe, dims=HEAD, low=0, high=1,
                chance=partial(always, uniform), chance_text="uniform attention of a causal row to one key",
            )  # fmt: skip
            found.append(OwnMeasure(row, partial(on_targets, pairs), ""))
        return found

    def loss(self, probe: str) -> Measure:
        """What is said of the loss on its rows."""
        return Measure(
            name=checked_name(loss_name(probe), "loss"), label=f"Loss on {probe}", short="loss", unit="nats", low=0,
            formula="mean cross-entropy of each next token", source=f"the probe {probe}", probe=probe, dims=("step",),
            worse="high",
        )  # fmt: skip


Probes = str | Mapping[str, Probe] | Iterable[str | Mapping[str, Probe]] | None
"""What may be given as `probes=`."""


def loss_name(probe: str) -> str:
    return f"{probe}_loss"


def loss_on(
    probe: str, logits: Float[Tensor, "batch pos d_vocab"] | None, tokens: Int[Tensor, "batch pos"]
) -> dict[str, Float[Tensor, ""]]:
    """The mean loss on the rows of a probe, by its name in a trace; nothing where not every token has logits."""
    return {} if logits is None else {loss_name(probe): per_token_loss(logits.float(), tokens).mean()}


def on_targets(pairs: Pairs, block: RowBlock) -> Float[Tensor, "batch head query_pos"]:
    """The weight on the keys that are named, by row; nan where a row has none."""
    batch, heads, rows, keys = block.pattern.shape
    value = block.pattern.new_full((batch, rows, heads), float("nan"))
    sequence, query, key = (
        pairs.to(value.device) - torch.tensor([block.sequence, block.start, 0], device=value.device)
    ).unbind(1)
    here = (sequence >= 0) & (sequence < batch) & (query >= 0) & (query < rows)
    sequence, query, key = sequence[here], query[here], key[here]
    weight = block.pattern[sequence, :, query, key.clamp(max=keys - 1)]
    weight = weight.where((key < keys).unsqueeze(1), 0)  # a key after the last row of a causal pattern weighs nothing
    value[sequence, query] = 0
    value.index_put_((sequence, query), weight, accumulate=True)
    return value.transpose(1, 2)


def _pairs(name: str, pairs: Any, tokens: Int[Tensor, "batch pos"]) -> Pairs:
    found = torch.as_tensor(np.asarray(pairs)) if not isinstance(pairs, Tensor) else pairs.detach().cpu()
    batch, pos = tokens.shape
    fits = found.ndim == 2 and found.shape[1] in (2, 3) and not found.is_floating_point() and len(found)
    if not fits or (found.shape[1] == 2 and len(found) != batch):
        raise ValueError(
            f"targets {name!r}: give (query, key) of each of the {batch} sequences, or any number of (sequence, query, "
            f"key), not {list(found.shape)}"
        )
    found = found.long()
    if found.shape[1] == 2:
        found = torch.cat([torch.arange(batch).unsqueeze(1), found], 1)
    if len(torch.unique(found, dim=0)) < len(found):
        raise ValueError(f"targets {name!r}: a pair of query and key stands there twice")
    if bool((found < 0).any()) or bool((found >= torch.tensor([batch, pos, pos])).any()):
        raise ValueError(f"targets {name!r}: sequences are 0 to {batch - 1}, queries and keys 0 to {pos - 1}")
    return found


def given_probes(probes: Any) -> dict[str, Probe]:
    """Probes by name that a person gave: a mapping, or `module:name` of one, of a probe, or of several such words."""
    found: dict[str, Probe] = {}
    if isinstance(probes, Probe):
        raise ValueError("probes: give tracer.Probe by name, {'mine': tracer.Probe(tokens)}")
    for one in [probes] if isinstance(probes, str | Mapping) else probes or []:
        thing = named(one, "probes") if isinstance(one, str) else one
        if isinstance(thing, Probe) and isinstance(one, str):
            thing = {one.rpartition(":")[2]: thing}
        if not isinstance(thing, Mapping) or not all(isinstance(x, Probe) for x in thing.values()):
            raise ValueError(f"probes={name_of(one)}: give tracer.Probe by name, {{'mine': tracer.Probe(tokens)}}")
        for name, probe in cast("Mapping[str, Probe]", thing).items():
            if name in found or name in PROBES:
                raise ValueError(f"probes: the name {name!r} is taken")
            found[checked_name(name, "probe")] = probe
    return found


@dataclass
class OwnRecord:
    """What a user adds to each record of heads: measures, and probes that they and scores are taken on."""

    measures: OwnMeasures
    probes: dict[str, Probe]

    @classmethod
    def given(cls, measures: Measures, probes: Probes, say: Callable[[str], None]) -> OwnRecord:
        """ValueError for what is none, for a name that is there twice, and for a measure on a probe that is not."""
        theirs, rows = given_probes(probes), given(measures)
        for one in rows:
            if one.row.probe not in ("text", "repeat", *theirs):
                raise ValueError(
                    f"measure {one.row.name}: there is no probe {one.row.probe!r}; give it by "
                    f"probes={{{one.row.probe!r}: tracer.Probe(tokens)}}, or leave probe= out"
                )
        rows = (*rows, *(score for name, probe in theirs.items() for score in probe.scores(name)))
        names = [one.row.name for one in rows] + [probe.loss(name).name for name, probe in theirs.items()]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"measures and probes: two are called {twice[0]}")
        return cls(OwnMeasures(rows, say), theirs)

    @property
    def rows(self) -> Iterable[Measure]:
        """What is said of each variable that they add to a trace."""
        yield from (one.row for one in self.measures.all)
        yield from (probe.loss(name) for name, probe in self.probes.items())

    def sequences(self, text: int, repeat: int) -> dict[str, int]:
        """Of each probe that a measure is a mean over, `text` and `repeat` of those that are ours."""
        return {"text": text, "repeat": repeat, **{name: len(one.tokens) for name, one in self.probes.items()}}

    @property
    def facts(self) -> dict[str, Any]:
        """For run.json, as text: from there nothing is imported."""
        return {
            "measures": list(dict.fromkeys(one.code for one in self.measures.all if one.code)),
            "probes": {name: probe.digest for name, probe in self.probes.items()},
        }

    def named(self, meta: Mapping[str, Any]) -> dict[str, tuple[list[str], list[str]]]:
        """By the word of the option, what a run was begun with and what is given now."""
        before, now = meta.get("probes") or {}, self.probes
        where = "(the module that has {})"
        return {
            "measures": (list(meta.get("measures") or []), self.facts["measures"]),
            "probes": ([where.format(name) for name in before], [where.format(name) for name in now]),
        }

    def check_probes(self, run: str, meta: Mapping[str, Any]) -> None:
        """ValueError where a probe of that name holds something else than when the run was begun."""
        before, now = meta.get("probes") or {}, self.facts["probes"]
        if other := [name for name in before if name in now and before[name] != now[name]]:
            raise ValueError(f"{run} was begun with another probe {other[0]}: its tokens or targets have changed")
