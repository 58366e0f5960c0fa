"""What can be switched off, as values: heads, a layer's attention, MLPs, single edges of a head, single paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tracer.config.field_docs import fields_in_help
from tracer.interventions.edits import exist
from tracer.interventions.replacements import head_of
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel


@fields_in_help
@dataclass(frozen=True)
class Attention:
    """All heads of a layer. Its output bias b_O, if there is one, stays."""

    layer: int
    """Counted from 0."""


@fields_in_help
@dataclass(frozen=True)
class MLP:
    """What the MLP of a layer writes, its output bias included."""

    layer: int
    """Counted from 0."""


@fields_in_help
@dataclass(frozen=True)
class Edge:
    """What one head attends from one query position to one key position, in every sequence."""

    layer: int
    """Of the head, counted from 0."""
    head: int
    """Within its layer, counted from 0."""
    query: int
    """Position that attends."""
    key: int
    """Position that is attended to; at most `query` where attention is causal."""
    renormalise: bool = False
    """False: the mass is gone. True: the row's other keys share it in proportion, so that it sums to 1 again."""


@fields_in_help
@dataclass(frozen=True)
class Path:
    """What one head (the receiver) reads of what an earlier head (the sender) writes, in one of its three inputs.

    Source: path patching, Wang et al. 2022 (2211.00593); Goldowsky-Dill et al. 2023 (2304.05969).
    """

    sender: Head
    """The head that writes, (layer, head)."""
    receiver: Head
    """The head that reads, in a later layer."""
    into: Literal["q", "k", "v"]
    """Which of the receiver's inputs no longer holds it."""


Part = Head | Attention | MLP | Edge | Path


@dataclass(frozen=True)
class Parts:
    """What is switched off, by kind, each distinct."""

    heads: list[Head]
    attentions: list[Attention]
    mlps: list[MLP]
    edges: list[Edge]
    paths: list[Path]


def name(part: Part) -> str:
    """L1H2; attention of layer 1; MLP of layer 1; L1H2 from 9 to 4; L0H3 -> keys of L1H2."""
    match part:
        case Attention(layer):
            return f"attention of layer {layer}"
        case MLP(layer):
            return f"MLP of layer {layer}"
        case Edge(layer, head, query, key):
            return f"L{layer}H{head} from {query} to {key}"
        case Path(sender, receiver, into):
            return f"{name(sender)} -> {INPUTS[into]} of {name(receiver)}"
        case (layer, head):
            return f"L{layer}H{head}"


INPUTS = {"q": "queries", "k": "keys", "v": "values"}


def every_head(model: HeadModel) -> list[Head]:
    """All heads that there are, layer by layer."""
    return [(layer, head) for layer, n_heads in enumerate(model.heads_of_layers) for head in range(n_heads)]


def check_heads(model: HeadModel, heads: Iterable[Head]) -> list[Head]:
    """The heads, sorted and distinct, or an error that names the one that does not exist."""
    chosen, n_heads = sorted({head_of(head) for head in heads}), dict(enumerate(model.heads_of_layers))
    for layer, head in chosen:
        if not 0 <= head < n_heads.get(layer, 0):
            where = f" in layer {layer}" if len(set(n_heads.values())) > 1 and layer in n_heads else ""
            raise ValueError(
                f"L{layer}H{head} does not exist: this model has layers 0 to {model.n_layers - 1} "
                f"and heads 0 to {n_heads.get(layer, model.n_heads) - 1}{where}"
            )
    return chosen


def check_parts(model: HeadModel, parts: Iterable[Part], n_pos: int) -> Parts:
    """The parts by kind, or an error that names the one that cannot be switched off on inputs of n_pos tokens."""
    kinds = (Attention, MLP, Edge, Path)
    given = list(dict.fromkeys(part if isinstance(part, kinds) else head_of(part) for part in parts))
    found = Parts(
        check_heads(model, [part for part in given if isinstance(part, tuple)]),
        [part for part in given if isinstance(part, Attention)],
        [part for part in given if isinstance(part, MLP)],
        [part for part in given if isinstance(part, Edge)],
        [part for part in given if isinstance(part, Path)],
    )
    if not given:
        raise ValueError("the set of heads is empty: name at least one (layer, head)")
    exist([part.layer for part in (*found.attentions, *found.mlps)], model.n_layers, "layer", "this model has layers")
    if found.mlps and model.why_no_mlps:
        raise ValueError(model.why_no_mlps)
    check_heads(model, [(edge.layer, edge.head) for edge in found.edges])
    _check_edges(found.edges, n_pos)
    check_heads(model, [head for path in found.paths for head in (path.sender, path.receiver)])
    for path in found.paths:
        _check_path(model, path)
    return found


def _check_edges(edges: list[Edge], n_pos: int) -> None:
    exist([place for edge in edges for place in (edge.query, edge.key)], n_pos, "position", "the input has positions")
    rows: dict[tuple[int, int, int], list[Edge]] = {}
    for edge in edges:
        if edge.key > edge.query:
            raise ValueError(f"{name(edge)}: a causal head does not look ahead, so there is no such edge")
        rows.setdefault((edge.layer, edge.head, edge.query), []).append(edge)
    for row in rows.values():
        if len({edge.renormalise for edge in row}) > 1:
            raise ValueError(f"{name(row[0])}: renormalise must be the same for all edges of one head and query")
        if row[0].renormalise and len({edge.key for edge in row}) == row[0].query + 1:
            raise ValueError(
                f"{name(row[0])}: query {row[0].query} sees no other key to take the mass; use renormalise=False"
            )


def _check_path(model: HeadModel, path: Path) -> None:
    if path.into not in INPUTS:
        raise ValueError(f"a head has no input {path.into!r}; it has: {', '.join(INPUTS)}")
    if path.sender[0] >= path.receiver[0]:
        raise ValueError(f"{name(path)}: the sender must be in an earlier layer than the receiver")
    if model.why_no_stream:
        raise ValueError(f"{name(path)}: there is no direct path to cut: {model.why_no_stream}")
