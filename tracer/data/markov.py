"""In-context Markov chains and what one could predict about them (Edelman et al. 2024, arXiv 2402.11004).

Every sequence has its own transition matrix, so nothing can be learned but the way to read it off the context. Models
pass from `uniform` to `unigram` to `bigram`. Symbols are 0 .. n_states - 1 here.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def chains(
    rng: np.random.Generator, n: int, length: int, n_states: int
) -> tuple[Float[np.ndarray, "batch n_states n_states"], Int[np.ndarray, "batch pos"]]:
    """(transitions, symbols): matrices with Dirichlet(1, ..., 1) rows, and a sequence of each chain.

    transitions[b, i, j] is the probability that j follows i; the first symbol is from the stationary distribution.
    """
    weights = rng.standard_exponential((n, n_states, n_states))
    transitions = weights / weights.sum(-1, keepdims=True)
    upto = transitions.cumsum(-1)
    draws = rng.random((n, length))
    symbols = np.empty((n, length), np.int64)
    symbols[:, 0] = _pick(stationary(transitions).cumsum(-1), draws[:, 0])
    rows = np.arange(n)
    for pos in range(1, length):
        symbols[:, pos] = _pick(upto[rows, symbols[:, pos - 1]], draws[:, pos])
    return transitions, symbols


def _pick(upto: Float[np.ndarray, "batch n_states"], draw: Float[np.ndarray, " batch"]) -> Int[np.ndarray, " batch"]:
    # the last cumulated probability can be 1 - 1e-16, so it is not compared with
    return (draw[:, None] >= upto[:, :-1]).sum(-1)


def stationary(transitions: Float[np.ndarray, "batch n_states n_states"]) -> Float[np.ndarray, "batch n_states"]:
    """p with p = p @ transitions and sum 1, the solution of (I - P + 1)^T p = 1."""
    n_states = transitions.shape[-1]
    system = np.eye(n_states) - transitions + 1
    return np.linalg.solve(system.swapaxes(-1, -2), np.ones((len(transitions), n_states, 1)))[..., 0]


def uniform(symbols: Int[np.ndarray, "batch pos"], n_states: int) -> Float[np.ndarray, "batch pos n_states"]:
    """Every symbol is as likely: 1 / n_states."""
    return np.full((*symbols.shape, n_states), 1 / n_states)


def unigram(
    symbols: Int[np.ndarray, "batch pos"], n_states: int, alpha: float = 1.0
) -> Float[np.ndarray, "batch pos n_states"]:
    """In-context frequency: (count of x up to and with t + alpha) / (t + 1 + alpha n_states), for the symbol after t.

    alpha = 0 is the plain frequency, which is never zero for what was seen but is for what was not.
    """
    counts = _one_hot(symbols, n_states).cumsum(1) + alpha
    return counts / counts.sum(-1, keepdims=True)


def bigram(
    symbols: Int[np.ndarray, "batch pos"], n_states: int, alpha: float = 1.0
) -> Float[np.ndarray, "batch pos n_states"]:
    """In-context transitions: (count of x_t -> x + alpha) / (count of x_t before t + alpha n_states), after t.

    With alpha = 1 this is the mean of the posterior under the prior of `chains`, given the transitions: the best one
    can do, but for what the first symbol tells about the chain.
    """
    one_hot = _one_hot(symbols, n_states)
    moves = np.zeros((*symbols.shape, n_states, n_states))
    moves[:, 1:] = (one_hot[:, :-1, :, None] * one_hot[:, 1:, None, :]).cumsum(1)
    counts = np.take_along_axis(moves, symbols[:, :, None, None], axis=2)[:, :, 0] + alpha
    return counts / counts.sum(-1, keepdims=True)


def _one_hot(symbols: Int[np.ndarray, "batch pos"], n_states: int) -> Float[np.ndarray, "batch pos n_states"]:
    return np.eye(n_states)[symbols]
