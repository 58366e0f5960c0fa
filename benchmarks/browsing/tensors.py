"""Attention of 12 x 12 heads with the shapes that trained heads have: sinks, near tokens, copies, noise."""

from __future__ import annotations

import numpy as np

LAYERS, HEADS = 12, 12


def tokens(n: int) -> list[str]:
    """Half of them, twice: so that there is something to copy."""
    words = ["the", " cat", " sat", " on", " a", " mat", ".", "\n", "def", "(", "self", ")", ":", " return", " x", ","]
    half = [f"{words[(i * 7 + i // 5) % len(words)]}" for i in range((n + 1) // 2)]
    return (half + half)[:n]


def attention(n: int, seed: int = 0) -> np.ndarray:
    """[layer head query_pos key_pos], rows sum to 1, causal; every head mixes its habit with noise."""
    draw = np.random.default_rng(seed)
    query, key = np.arange(n)[:, None], np.arange(n)[None, :]
    habits = [
        np.where(key == 0, 6.0, 0.0),
        np.where(key == query - 1, 6.0, 0.0),
        np.where(key == query - n // 2 + 1, 7.0, 0.0) + np.where(key == 0, 3.0, 0.0),
        -np.abs(query - key) / 3.0,
        np.zeros((n, n)),
    ]
    out = np.empty((LAYERS, HEADS, n, n), np.float32)
    for layer in range(LAYERS):
        for head in range(HEADS):
            scores = habits[(layer + 2 * head) % len(habits)] + draw.normal(0, 1, n) + 0.7 * draw.normal(0, 1, (n, n))
            scores = np.where(key > query, -np.inf, scores)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[layer, head] = weights / weights.sum(-1, keepdims=True)
    return out
