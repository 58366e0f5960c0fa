"""Data of somebody's own, as a user writes it: modular addition, `a + b = c`, of which the answer alone counts."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from tracer.named_code import NAMED

P, PLUS, EQUALS = 13, 13, 14


class Addition:
    """Half of all pairs are trained on, the others held out."""

    d_vocab, n_train_rows = P + 2, P * P // 2
    references = {"uniform": math.log(P)}

    def __init__(self, n_ctx: int, seed: int) -> None:
        a, b = np.divmod(np.random.default_rng(seed).permutation(P * P), P)
        self.all = np.stack([a, np.full_like(a, PLUS), b, np.full_like(a, EQUALS), (a + b) % P], 1)

    def rows(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return self.all[rng.integers(0, P * P // 2, n)]

    def held_out(self, n: int) -> np.ndarray:
        return np.resize(self.all[P * P // 2 :], (n, 5))

    def loss_mask(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, :-1] == EQUALS


class Uneven(Addition):
    """Each row counts one or two targets, at places of its own."""

    def loss_mask(self, rows: np.ndarray) -> np.ndarray:
        return (rows[:, :1] + np.arange(4)) % 3 == 0


class Unmasked(Addition):
    """Every target counts."""

    loss_mask = None


@pytest.fixture
def named_here_alone() -> Iterator[None]:
    """What a test names as code is named by nobody after it."""
    before = dict(NAMED)
    yield
    NAMED.clear()
    NAMED.update(before)
