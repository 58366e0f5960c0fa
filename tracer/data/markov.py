"""In-context Markov chains (Edelman et al. 2024, arXiv 2402.11004).

Every sequence has its own transition matrix, so nothing can be learned but the way to read it off the context. Symbols
are 0 .. n_states - 1 here.
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
