"""What the value at chance depends on: how much there is to look at, and how many tokens there are to guess."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PERIOD = 25
"""Olsson et al. 2022 repeat 25 random tokens."""


def period(d_vocab: int, n_ctx: int) -> int:
    """Length of Probe R's block: 25, or as much as fits twice in the context and once in the vocabulary."""
    return min(MAX_PERIOD, (n_ctx - 1) // 2, d_vocab - 1)


@dataclass(frozen=True)
class Setting:
    """What the value at chance depends on."""

    n_ctx: int
    """Tokens of a row of held-out text."""
    period: int
    """Length L of Probe R's repeated block; 0 when it was not measured on."""
    d_vocab: int
    """Size of the vocabulary; 0 for a model that reads no tokens."""
    causal: bool = True
    """Does every row see the keys up to itself only? Otherwise it sees all n_ctx."""

    @classmethod
    def of(cls, d_vocab: int, n_ctx: int) -> Setting:
        """The setting of a run."""
        return cls(n_ctx, period(d_vocab, n_ctx), d_vocab)
