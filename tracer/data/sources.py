"""Sources make rows [batch n_ctx+1] of token ids from a random generator; they keep no state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int, Integer

from tracer.data import markov
from tracer.data.tokenizer import BOS_ID

Rows = Int[np.ndarray, "batch pos"]

HELD_OUT = (0x6D616E79, 0x65796573, 0, 1)
"""Seed of held-out random rows; training uses [seed, step, stream], which never has a 1 in this place."""


@runtime_checkable
class RowSource(Protocol):
    def rows(self, rng: np.random.Generator, n: int) -> Rows:
        """n training rows."""
        ...

    def held_out(self, n: int) -> Rows:
        """n fixed rows that are never trained on."""
        ...


@dataclass(frozen=True)
class Text:
    """Windows of n_ctx+1 tokens: at random places of the training text, evenly spread over the held-out text.

    With `start_token` each begins with it, as prompts do, in the place of its own first token.
    """

    train: Integer[np.ndarray, " train_pos"]
    held: Integer[np.ndarray, " held_pos"]
    n_ctx: int
    start_token: bool = False

    def rows(self, rng: np.random.Generator, n: int) -> Rows:
        return self._windows(self.train, rng.integers(0, len(self.train) - self.n_ctx, n))

    def held_out(self, n: int) -> Rows:
        return self._windows(self.held, np.linspace(0, len(self.held) - self.n_ctx - 1, n).astype(np.int64))

    def _windows(self, stream: Integer[np.ndarray, " stream_pos"], starts: Int[np.ndarray, " batch"]) -> Rows:
        rows = stream[starts[:, None] + np.arange(self.n_ctx + 1)].astype(np.int64)
        if self.start_token:
            rows[:, 0] = BOS_ID
        return rows


@dataclass(frozen=True)
class Repeated:
    """The start token, then a block of random tokens over and over; each row has its own block and period.

    The period must vary: with a fixed one a model learns the distance instead of matching tokens.
    """

    d_vocab: int
    n_ctx: int
    period_min: int
    period_max: int

    def __post_init__(self) -> None:
        if self.d_vocab < 3:
            raise ValueError(f"vocab_size={self.d_vocab} leaves repeated-random less than two tokens to draw from")
        if self.period_max >= self.n_ctx:
            raise ValueError(
                f"a block of period_max={self.period_max} tokens never repeats in n_ctx={self.n_ctx}; "
                f"period_max can be at most {self.n_ctx - 1}"
            )

    def rows(self, rng: np.random.Generator, n: int) -> Rows:
        periods = rng.integers(self.period_min, self.period_max + 1, n)
        blocks = rng.integers(1, self.d_vocab, (n, self.period_max))
        rows = np.full((n, self.n_ctx + 1), BOS_ID, np.int64)
        rows[:, 1:] = np.take_along_axis(blocks, np.arange(self.n_ctx) % periods[:, None], axis=1)
        return rows

    def held_out(self, n: int) -> Rows:
        return self.rows(np.random.default_rng(HELD_OUT), n)

    def passage(self, n_tokens: int) -> Int[np.ndarray, " pos"]:
        """A held-out block, repeated to n_tokens."""
        period = min(max(12, self.period_min), self.period_max, max(1, n_tokens // 2))
        block = np.random.default_rng(HELD_OUT).integers(1, self.d_vocab, period)
        return np.resize(block, n_tokens)


@dataclass(frozen=True)
class Markov:
    """The start token, then a sequence of a Markov chain of its own (see tracer.data.markov); symbol i is token i+1."""

    n_states: int
    n_ctx: int

    def __post_init__(self) -> None:
        if self.n_states < 2:
            raise ValueError(f"markov_states={self.n_states} must be at least 2")

    def rows(self, rng: np.random.Generator, n: int) -> Rows:
        rows = np.full((n, self.n_ctx + 1), BOS_ID, np.int64)
        rows[:, 1:] = markov.chains(rng, n, self.n_ctx, self.n_states)[1] + 1
        return rows

    def held_out(self, n: int) -> Rows:
        return self.rows(np.random.default_rng(HELD_OUT), n)

    def passage(self, n_tokens: int) -> Int[np.ndarray, " pos"]:
        """The start of a held-out sequence."""
        return self.held_out(1)[0, 1 : n_tokens + 1]


@dataclass(frozen=True)
class Mix:
    """Rows of `main`, each replaced by a row of `other` with probability `share`; held-out rows are all of `main`."""

    main: RowSource
    other: RowSource
    share: float

    def rows(self, rng: np.random.Generator, n: int) -> Rows:
        rows, replaced = self._drawn(rng, n)
        rows[replaced] = self.other.rows(rng, int(replaced.sum()))
        return rows

    def replaced(self, rng: np.random.Generator, n: int) -> Bool[np.ndarray, " batch"]:
        """Which of `rows` are of `other`."""
        return self._drawn(rng, n)[1]

    def _drawn(self, rng: np.random.Generator, n: int) -> tuple[Rows, Bool[np.ndarray, " batch"]]:
        return self.main.rows(rng, n), rng.random(n) < self.share

    def held_out(self, n: int) -> Rows:
        return self.main.held_out(n)
