"""What a measure of one's own reads: some query rows of a layer's heads, as they pass by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from einops import rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor

from tracer.config.field_docs import fields_in_help


@fields_in_help
@dataclass(frozen=True)
class RowBlock:
    """Some query rows of some heads of one layer, of some sequences.

    A pattern never exists whole: a measure is called with a few rows at a time, in linear memory, and gives one number
    for each: [batch head query_pos]. nan leaves a row out of the mean.
    """

    pattern: Float[Tensor, "batch head query_pos key_pos"]
    """Weights. A row sums to 1; to 0 where it sees no key; to less where a key that is no position (a sink, a learned
    one) took some, or where weights are sigmoids (a row of more than 1 is divided by its sum). Of a causal pattern keys
    after the last of these rows are left out: they weigh 0."""
    lse: Float[Tensor, "batch head query_pos"]
    """ln sum_k exp(score); nan of a model that makes its own weights and does not show its scores, or whose
    weights are no softmax."""
    start: int
    """Position of the first of these rows,"""
    sequence: int
    """and the number of the first of these sequences in its batch."""
    causal: bool
    """Does no query see a key after it?"""
    tokens: Int[Tensor, "batch pos"] | None
    """All of each sequence; None where the model reads none, or queries and keys are not the same tokens."""
    vectors: Mapping[str, Tensor]
    """q [batch query_pos head d_head], k and v [batch key_pos kv_head d_head]: what is known of them."""
    apart: int = 1
    """Positions from one of these rows to the next: a survey looks at one in so many."""

    @property
    def positions(self) -> range:
        """Of the rows, in the sequence."""
        return range(self.start, self.start + self.apart * self.pattern.shape[2], self.apart)

    @property
    def q(self) -> Float[Tensor, "batch query_pos head d_head"]:
        """Queries of these rows, as they enter the dot product. ValueError where the model makes its own weights."""
        return self._vectors("q")

    @property
    def k(self) -> Float[Tensor, "batch key_pos kv_head d_head"]:
        """Keys, as they enter the dot product; query head h reads key head h // (head // kv_head)."""
        return self._vectors("k")

    @property
    def v(self) -> Float[Tensor, "batch key_pos kv_head d_value"]:
        """Values of the keys."""
        return self._vectors("v")

    @property
    def scores(self) -> Float[Tensor, "batch head query_pos key_pos"]:
        """Scaled and masked, what the pattern is the softmax of; -inf where the weight is 0."""
        return self.pattern.log() + rearrange(self.lse, "batch head query_pos -> batch head query_pos 1")

    @property
    def z(self) -> Float[Tensor, "batch query_pos head d_value"]:
        """What each head gives, before W_O: the pattern times v."""
        groups = self.pattern.shape[1] // self.v.shape[2]
        v = repeat(self.v, "batch key_pos kv d -> batch (kv groups) key_pos d", groups=groups)
        return rearrange(self.pattern @ v.to(self.pattern), "batch head query_pos d -> batch query_pos head d")

    def _vectors(self, name: str) -> Tensor:
        if name not in self.vectors:
            raise ValueError(f"{name} is not known here: the model makes its attention weights itself")
        return self.vectors[name]


@runtime_checkable
class OwnRows(Protocol):
    """Measures of one's own, asked for a block of rows."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def __call__(self, block: RowBlock, /) -> dict[str, Float[Tensor, "batch head query_pos"]]:
        """One number a row by each name, all of them there."""
        ...
