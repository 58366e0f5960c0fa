"""What the value at chance depends on: how much there is to look at, and how many tokens there are to guess."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PERIOD = 16
"""So that copies are 16 to 32 tokens apart: about the 25 of Olsson et al. 2022 on average, and never only 25."""


FARTHEST = 16
"""Tokens back that a fixed distance may be: each costs a number a row and head. Ours."""


def farthest(n_ctx: int) -> int:
    """The largest fixed distance that is looked for: 16, or what half of the rows have behind them."""
    return min(FARTHEST, n_ctx // 2)


def period(d_vocab: int, n_ctx: int) -> int:
    """Length L of Probe R's block, its shortest period: 16, or what fits three times in context and vocabulary."""
    return min(MAX_PERIOD, (n_ctx - 1) // 3, max(1, (d_vocab - 1) // 3))


@dataclass(frozen=True)
class Setting:
    """What the value at chance depends on."""

    n_ctx: int
    """Tokens of a row of held-out text."""
    period: int
    """Length L of Probe R's block; 0 when it was not measured on."""
    d_vocab: int
    """Size of the vocabulary; 0 for a model that reads no tokens."""
    causal: bool = True
    """Does every row see the keys up to itself only? Otherwise it sees all n_ctx."""

    @classmethod
    def of(cls, d_vocab: int, n_ctx: int) -> Setting:
        """The setting of a run."""
        return cls(n_ctx, period(d_vocab, n_ctx), d_vocab)
