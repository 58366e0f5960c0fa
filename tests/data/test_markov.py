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


SYMBOLS = np.array([[0, 1, 0, 1, 1]])


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        (markov.uniform(SYMBOLS, 4), [[1 / 4] * 4] * 5),
        (markov.unigram(SYMBOLS, 2), [[2 / 3, 1 / 3], [1 / 2, 1 / 2], [3 / 5, 2 / 5], [1 / 2, 1 / 2], [3 / 7, 4 / 7]]),
        (
            markov.unigram(SYMBOLS, 2, alpha=0.0),
            [[1, 0], [1 / 2, 1 / 2], [2 / 3, 1 / 3], [1 / 2, 1 / 2], [2 / 5, 3 / 5]],
        ),
        # after 0: nothing seen; after 1: nothing; after 0: 0->1; after 1: 1->0; after 1: 1->0 and 1->1
        (markov.bigram(SYMBOLS, 2), [[1 / 2, 1 / 2], [1 / 2, 1 / 2], [1 / 3, 2 / 3], [2 / 3, 1 / 3], [1 / 2, 1 / 2]]),
        (markov.bigram(SYMBOLS, 2, 0.5)[:, 2:4], [[1 / 4, 3 / 4], [3 / 4, 1 / 4]]),
    ],
)
def test_reference_predictions_by_hand(prediction, expected):
    assert np.allclose(prediction[0], expected)


def test_bigram_beats_unigram_beats_uniform():
    _, symbols = markov.chains(np.random.default_rng(0), 400, 100, 3)

    def loss(prediction):
        return -np.log(np.take_along_axis(prediction[:, :-1], symbols[:, 1:, None], -1)).mean()

    uniform, unigram, bigram = (loss(f(symbols, 3)) for f in (markov.uniform, markov.unigram, markov.bigram))
    assert np.isclose(uniform, np.log(3))
    assert bigram < unigram - 0.05 < uniform - 0.1


def test_bigram_with_alpha_1_is_the_posterior_mean():
    # the mean over chains from the prior, weighted by how likely each made the transitions 0 1 1 0 1 0
    symbols = np.array([0, 1, 1, 0, 1, 0])
    transitions, _ = markov.chains(np.random.default_rng(0), 200_000, 1, 2)
    weight = transitions[:, symbols[:-1], symbols[1:]].prod(-1)
    posterior = (weight[:, None] * transitions[:, 0]).sum(0) / weight.sum()
    assert np.allclose(markov.bigram(symbols[None], 2)[0, -1], posterior, atol=0.005)
    assert np.allclose(markov.bigram(symbols[None], 2)[0, -1], [1 / 4, 3 / 4])
