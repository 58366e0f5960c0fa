import numpy as np
import pytest

from tracer.data import markov


@pytest.mark.parametrize("n_states", [2, 3, 8])
def test_sequences_follow_their_own_chain(n_states):
    transitions, symbols = markov.chains(np.random.default_rng(0), 20, 4000, n_states)
    assert np.allclose(transitions.sum(-1), 1)
    for matrix, sequence in zip(transitions, symbols, strict=True):
        moves = np.zeros((n_states, n_states))
        np.add.at(moves, (sequence[:-1], sequence[1:]), 1)
        visits = moves.sum(1, keepdims=True)
        seen = np.divide(moves, visits, out=matrix.copy(), where=visits > 0)
        assert (abs(seen - matrix) <= 5 * np.sqrt(0.25 / np.maximum(visits, 1))).all()


def test_rows_are_uniform_on_the_simplex():
    transitions, _ = markov.chains(np.random.default_rng(0), 20_000, 1, 3)
    entries = transitions[:, 0, 0]
    assert abs(entries.mean() - 1 / 3) < 0.01
    assert abs(entries.var() - 1 / 18) < 0.003  # Dirichlet(1, 1, 1): (1/3)(2/3)/4


@pytest.mark.parametrize(
    ("transitions", "expected"),
    [
        ([[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5]),
        ([[0.9, 0.1], [0.2, 0.8]], [2 / 3, 1 / 3]),
        ([[0.0, 1.0], [1.0, 0.0]], [0.5, 0.5]),
        ([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0.5, 0.5]], [0.25, 0.5, 0.25]),
    ],
)
def test_stationary(transitions, expected):
    assert np.allclose(markov.stationary(np.array([transitions]))[0], expected)


def test_first_symbols_are_stationary():
    transitions, symbols = markov.chains(np.random.default_rng(5), 20_000, 1, 3)
    chance = markov.stationary(transitions)
    for symbol in range(3):
        surprise = (symbols[:, 0] == symbol) - chance[:, symbol]
        assert abs(surprise.mean()) < 0.015
        # nothing else about the chain tells more than the stationary distribution does
        for told in (chance[:, symbol], *transitions[:, :, symbol].T):
            assert abs(np.corrcoef(surprise, told)[0, 1]) < 0.03
