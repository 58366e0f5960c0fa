"""The order of axes in attention written by hand: from any of them to [batch head query key], and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from einops import rearrange
from torch import Tensor


@dataclass(frozen=True)
class AxisOrder:
    """How an implementation by hand orders the axes of weights, v and z."""

    fold: int | None
    w_axes: str
    v_axes: str
    z_axes: str
    has_heads: bool

    @classmethod
    def of(
        cls, equation: str | None, operands: list[Any], at: int, fold: int | None, batch: int | None
    ) -> AxisOrder | None:  # fmt: skip
        weights, v = operands[at], operands[1 - at]
        if not isinstance(v, Tensor) or v.ndim != weights.ndim:
            return None
        heads = weights.ndim == 4
        if equation is None:
            if v.shape[-2] != weights.shape[-1]:
                return None
            front = "bh" if heads else "b"
            return cls(fold, f"{front}qk", f"{front}kd", f"{front}qd", heads)
        inputs, _, out = equation.replace(" ", "").partition("->")
        if "..." in equation:
            front = "XY"[: weights.ndim - 2]
            inputs, out = inputs.replace("...", front), out.replace("...", front)
        terms = inputs.split(",")
        if len(terms) != 2 or [len(set(t)) for t in (*terms, out)] != [weights.ndim] * 3:
            return None
        w, v_term = terms[at], terms[1 - at]
        shared = [letter for letter in w if letter in v_term and letter in out]
        sums, queries = set(w) & set(v_term) - set(out), set(w) & set(out) - set(v_term)
        if len(shared) != weights.ndim - 2 or len(sums) != 1 or len(queries) != 1:
            return None
        if heads and _head_first(shared, [weights.shape[w.index(letter)] for letter in shared], batch):
            shared.reverse()
        names = dict.fromkeys(sums, "k") | dict.fromkeys(queries, "q") | dict(zip(shared, "bh", strict=False))
        w, v_term, out = ("".join(names.get(letter, "d") for letter in term) for term in (w, v_term, out))
        return cls(None, w, v_term, out, heads)

    def weights(self, x: Tensor) -> Tensor:
        unfolded = x.ndim == 4 and not self.has_heads
        return x if unfolded else rearrange(x, f"{self._named(self.w_axes)} -> b h q k", **self._sizes)

    def v(self, x: Tensor) -> Tensor:
        return rearrange(x, f"{self._named(self.v_axes)} -> b k h d", **self._sizes)

    def z(self, x: Tensor) -> Tensor:
        return rearrange(x, f"{self._named(self.z_axes)} -> b q h d", **self._sizes)

    def back(self, z: Tensor) -> Tensor:
        return rearrange(z, f"b q h d -> {self._named(self.z_axes)}")

    def _named(self, axes: str) -> str:
        named = " ".join(axes)
        return named if self.has_heads else named.replace("b", "(b h)")

    @property
    def _sizes(self) -> dict[str, int]:
        return {} if self.has_heads else {"h": self.fold or 1}


def _head_first(letters: list[str], sizes: list[int], batch: int | None) -> bool:
    """Of the two axes that weights, v and z share: is the first one the heads? By its letter, else by its size."""
    named = [letter in "hH" for letter in letters]
    return named[0] if named[0] != named[1] else sizes[0] != batch and sizes[1] == batch
