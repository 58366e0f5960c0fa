"""Attention by distance, of patterns whose answer is known by hand."""

import numpy as np
import pytest
import torch

from tracer.analysis.by_distance import FEWEST, by_distance, distances, even
from tracer.config import ModelConfig
from tracer.model import Transformer

N = 12


def back(distance: int) -> np.ndarray:
    """Every position looks so many places back, those that cannot at the start."""
    pattern = np.zeros((N, N))
    pattern[np.arange(N), np.maximum(np.arange(N) - distance, 0)] = 1
    return pattern


def test_an_even_head() -> None:
    np.testing.assert_allclose(even(3), [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.parametrize("distance", [1, 3])
def test_a_head_that_looks_back(distance: int) -> None:
    found = distances(back(distance))
    assert len(found.shares) == N - FEWEST + 1 and found.best == distance and found.prefers
    assert found.shares[distance] == 1
    assert found.even[1] == pytest.approx(np.mean([1 / n for n in range(2, N + 1)]))
    assert len(distances(back(distance), fewest=1).shares) == N


@pytest.mark.parametrize(("share", "prefers"), [(0.0, False), (0.1, False), (0.3, True)])
def test_a_preference_is_twice_what_an_even_head_gives(share: float, prefers: bool) -> None:
    """An even head gives the token before 0.19 on average: 0.27 with a tenth of all moved there, 0.43 with three."""
    found = distances((1 - share) * even(N) + share * back(1))
    assert found.best == 1 and found.prefers is prefers
    assert found.shares[1] / found.even[1] == pytest.approx(1 - share + share / found.even[1])


def test_too_few_tokens_are_refused_in_words() -> None:
    model = Transformer(ModelConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=N, d_vocab=5), seed=0)
    with pytest.raises(ValueError, match=f"{FEWEST} tokens are too few"):
        by_distance(model, torch.zeros(1, FEWEST, dtype=torch.int64))
    assert by_distance(model, torch.zeros(1, FEWEST + 1, dtype=torch.int64)).values.shape == (1, 1, 1)


def test_heads_of_a_model_without_scores_attend_evenly() -> None:
    model = Transformer(ModelConfig(n_layers=2, n_heads=2, d_model=8, n_ctx=N, d_vocab=5), seed=0).eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.zero_()
    found = by_distance(model, torch.arange(2 * N).reshape(2, N) % 5)
    assert found.values.shape == (2, 2, N - FEWEST)
    # a row that sees n others beside the start token gives 1 / (n + 1) to each: even() has the start token's share too
    rows = [1 / (n + 1) for n in range(1, N)]
    np.testing.assert_allclose(found.values[..., 0], np.mean(rows), rtol=1e-5)
    np.testing.assert_allclose(found.uniform[0], np.mean(rows), rtol=1e-5)
    np.testing.assert_allclose(found.values, np.broadcast_to(found.uniform, found.values.shape), rtol=1e-5)
    np.testing.assert_allclose(found.rest, np.mean(rows), rtol=1e-5)
