"""Single query -> key edges of a head: attention mass taken away, or given to the row's other keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tracer.ablate.parts import Edge
from tracer.interventions.edits import Edit, exist


@dataclass(frozen=True)
class Cut:
    """A pattern whose mass at some (head, query, key) is `mass`, the rest of those rows kept or rescaled.

    Source: ours. With `renormalise` a row keeps its sum; where nothing is left to rescale, the rest stays 0.
    """

    edges: tuple[tuple[int, int, int], ...]
    renormalise: bool = False
    mass: float | Tensor = 0.0
    """Broadcast to the pattern; only its values at the edges count."""

    def __call__(
        self, pattern: Float[Tensor, "batch head query_pos key_pos"]
    ) -> Float[Tensor, "batch head query_pos key_pos"]:
        _check(self.edges, pattern)
        rows: dict[tuple[int, int], list[int]] = {}
        for head, query, key in self.edges:
            rows.setdefault((head, query), []).append(key)
        heads, queries = (list(places) for places in zip(*rows, strict=True))
        hidden = torch.zeros(len(rows), pattern.shape[-1], dtype=torch.bool, device=pattern.device)
        for row, keys in zip(hidden, rows.values(), strict=True):
            row[keys] = True
        before = pattern[:, heads, queries]
        mass = torch.as_tensor(self.mass, dtype=pattern.dtype, device=pattern.device)
        mass = mass.expand_as(pattern)[:, heads, queries]
        rest = before.masked_fill(hidden, 0)
        if self.renormalise:
            taken = mass.masked_fill(~hidden, 0).sum(-1, keepdim=True)
            left = rest.sum(-1, keepdim=True).clamp_min(torch.finfo(rest.dtype).tiny)
            rest = rest * ((before.sum(-1, keepdim=True) - taken) / left)
        after = pattern.clone()
        after[:, heads, queries] = torch.where(hidden, mass, rest)
        return after


def _check(edges: tuple[tuple[int, int, int], ...], pattern: Float[Tensor, "batch head query_pos key_pos"]) -> None:
    heads, queries, keys = zip(*edges, strict=True)
    for places, size, what, there_are in (
        (heads, pattern.shape[1], "head", "this layer has heads"),
        (queries, pattern.shape[2], "position", "the input has positions"),
        (keys, pattern.shape[3], "position", "the input has positions"),
    ):
        exist(places, size, what, there_are)


def cut(edges: Iterable[Edge], instead: Callable[[str], float | Tensor]) -> list[Edit]:
    """The edits that put the mass of `instead` (by tap) at the edges."""
    groups: dict[tuple[int, bool], list[tuple[int, int, int]]] = {}
    for edge in edges:
        groups.setdefault((edge.layer, edge.renormalise), []).append((edge.head, edge.query, edge.key))
    return [
        Edit(pattern_tap(layer), instead=Cut(tuple(places), renormalise, instead(pattern_tap(layer))))
        for (layer, renormalise), places in groups.items()
    ]


def pattern_tap(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_pattern"
