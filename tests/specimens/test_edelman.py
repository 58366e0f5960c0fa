"""The exact losses of three strategies on chains of two symbols, by counting sequences, in float64."""

from __future__ import annotations

import importlib
from functools import cache
from math import comb, lgamma, log
from typing import Any

import numpy as np
import pytest

from tracer.specimens.paper_folder import load

T = 100
KINDS = {"Dirichlet": "dirichlet", "DoublyStochastic": "doubly", "Iid": "iid"}


@cache
def chains() -> Any:
    load("edelman")
    return importlib.import_module("edelman.chains")


def quadrature(kind: str, n: int = 48) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chances of the second symbol after the first and after the second, and weights that sum to 1 (Gauss-Legendre)."""
    x, w = np.polynomial.legendre.leggauss(n)
    x, w = (x + 1) / 2, w / 2
    if kind == "dirichlet":
        return np.repeat(x, n), np.tile(x, n), np.outer(w, w).ravel()
    return (1 - x, x, w) if kind == "doubly" else (x, x, w)


def exact_unigram(kind: str) -> float:
    """Mean over T positions of the loss of (count + 1) / (seen + 2), by the law of (last symbol, count)."""
    a, b, weight = quadrature(kind)
    first, after = a / (1 - b + a), np.stack([a, b], 1)[:, :, None]
    law = np.zeros((len(a), 2, T + 1))
    law[:, 0, 0], law[:, 1, 1] = 1 - first, first
    total, counts = log(2), np.arange(T + 1)
    for seen in range(1, T):
        chance = np.minimum((counts + 1) / (seen + 2), 0.999)  # larger counts than were seen have no weight
        loss = -(after * np.log(chance) + (1 - after) * np.log(1 - chance))
        total += float((weight[:, None, None] * law * loss).sum())
        two, one = (law * after).sum(1), (law * (1 - after)).sum(1)
        law = np.stack([one, np.concatenate([np.zeros((len(a), 1)), two[:, :-1]], 1)], 1)
    return total / T


def exact_bigram(kind: str) -> float:
    """Mean over T positions of the loss of counting from one and one: -ln B(n + 1, m + 1) of each symbol's successors.

    Sequences with the same transition counts are as likely: Whittle's formula says how many there are.
    """
    a, b, weight = quadrature(kind)
    first, logs = a / (1 - b + a), np.log(np.stack([a, 1 - a, 1 - b, b]))

    def log_beta(n: int, m: int) -> float:
        return lgamma(n + 1) + lgamma(m + 1) - lgamma(n + m + 2)

    total, mass = log(2), 0.0
    for begin in (0, 1):
        begins = weight * (first if begin else 1 - first)
        for switches in range(T):
            runs, others = switches // 2 + 1, (switches + 1) // 2
            stays = np.arange(T - switches)
            if not others:
                stays = stays[-1:]
            rest = T - 1 - switches - stays
            ways = [
                comb(int(s) + runs - 1, runs - 1) * (comb(int(r) + others - 1, others - 1) if others else 1)
                for s, r in zip(stays, rest, strict=True)
            ]
            leave, back = np.full_like(stays, (switches + 1) // 2), np.full_like(stays, switches // 2)
            # after the first symbol: to the second, to the first; after the second: to the first, to the second
            n = np.stack([leave, stays, back, rest] if begin == 0 else [back, rest, leave, stays])
            p = begins @ np.exp(logs.T @ n + np.log(np.array(ways, float)))
            mass += float(p.sum())
            losses = [-log_beta(int(c[0]), int(c[1])) - log_beta(int(c[2]), int(c[3])) for c in n.T]
            total += float(p @ np.array(losses))
    assert mass == pytest.approx(1, abs=1e-9)
    return total / T


@pytest.mark.parametrize("name", KINDS)
def test_the_lines_are_exact(name: str) -> None:
    lines = getattr(chains(), name).lines
    assert lines["uniform"] == pytest.approx(log(2), abs=5e-5)
    assert lines["unigram"] == pytest.approx(exact_unigram(KINDS[name]), abs=5e-5)
    assert lines["bigram"] == pytest.approx(exact_bigram(KINDS[name]), abs=5e-5)


@pytest.mark.parametrize("name", KINDS)
def test_rows_have_these_losses(name: str) -> None:
    """Within three standard errors of 4,000 rows; so chains, rows and strategies are those of the exact sums."""
    source = getattr(chains(), name)(T, 0)
    rows = source.rows(np.random.default_rng(5), 4000)
    assert rows.shape == (4000, T + 1) and (rows[:, 0] == 0).all() and set(np.unique(rows[:, 1:])) == {1, 2}
    assert source.references == source.lines and getattr(chains(), name)(T - 1, 0).references == {}
    for strategy, chance in chains().strategies(rows).items():
        losses = -np.log(np.where(rows[:, 1:] == 2, chance, 1 - chance)).mean(1)
        assert abs(losses.mean() - source.lines[strategy]) < 3 * losses.std() / 4000**0.5 + 1e-4


def test_strategies_of_a_row_by_hand() -> None:
    said = chains().strategies(np.array([[0, 1, 2, 1, 2, 2]]))
    assert said["uniform"].tolist() == [[0.5] * 5]
    assert said["unigram"][0].tolist() == pytest.approx([1 / 2, 1 / 3, 2 / 4, 2 / 5, 3 / 6])
    assert said["bigram"][0].tolist() == pytest.approx([1 / 2, 1 / 2, 1 / 2, 2 / 3, 1 / 3])


def test_shuffled_rows_keep_counts_and_the_last_two() -> None:
    numbers = importlib.import_module("edelman.numbers") if chains() else None
    assert numbers is not None
    rows = chains().Dirichlet(20, 0).rows(np.random.default_rng(1), 50)
    mixed = numbers.shuffled(rows)
    assert (mixed[:, [0, -2, -1]] == rows[:, [0, -2, -1]]).all() and (mixed.sum(1) == rows.sum(1)).all()
    assert (mixed != rows).any(1).mean() > 0.8


def test_numbers_of_a_model_that_is_a_strategy() -> None:
    """A model that says what the bigram strategy says is 0 from it, and as far from the others as it is."""
    import torch

    chains()
    numbers = importlib.import_module("edelman.numbers")
    _, _, by = numbers.fixed(chains().Dirichlet, 30)

    class Says:
        n_ctx = 30

        def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
            rows = np.concatenate([tokens.numpy(), np.ones((len(tokens), 1), np.int64)], 1)
            chance = torch.from_numpy(chains().strategies(rows)["bigram"])
            return torch.stack([torch.full_like(chance, -9), (1 - chance).log(), chance.log()], -1)

    found = {name: float(value) for name, value in numbers.on_dirichlet(Says(), 0).items()}
    assert found["kl_bigram"] == pytest.approx(0, abs=1e-12) and found["excess"] == pytest.approx(0, abs=1e-12)
    p = by["bigram"]
    assert found["kl_uniform"] == pytest.approx((np.log(2) + p * np.log(p) + (1 - p) * np.log(1 - p)).mean())
    assert 0.5 < found["shuffled_rise"] / found["counting_rise"] < 2
