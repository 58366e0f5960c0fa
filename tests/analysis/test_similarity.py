"""Two models beside each other: distances whose answers are known by hand."""

import numpy as np
import pytest

from tracer.analysis.similarity import distances, total_variation

NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([[1.0, 0.0]], [[1.0, 0.0]], [0.0]),
        ([[1.0, 0.0]], [[0.0, 1.0]], [1.0]),
        ([[0.5, 0.5, 0.0]], [[0.25, 0.5, 0.25]], [0.25]),
        ([[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.75, 0.25]], [0.0, 0.25]),
    ],
)
def test_total_variation(one: list[list[float]], other: list[list[float]], expected: list[float]) -> None:
    np.testing.assert_allclose(total_variation(np.array(one), np.array(other)), expected, rtol=0, atol=1e-15)


def test_total_variation_is_the_float64_sum_over_sets_of_keys() -> None:
    """The oracle is the definition: the largest difference of the mass on any set of keys."""
    p, q = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 5)).astype(np.float32)
    sets = np.array([[key >> bit & 1 for bit in range(6)] for key in range(64)], np.float64)
    largest = ((p.astype(np.float64) - q.astype(np.float64)) @ sets.T).max(-1)
    found = total_variation(p, q)
    assert found.dtype == np.float64 and found.shape == (3, 5)
    np.testing.assert_allclose(found, largest, atol=1e-7)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # deviations over 0, 2, 0, 2 are 1, so distances are plain differences
        ([[0.0], [2.0]], [[0.0], [2.0]], [[0.0, 2.0], [2.0, 0.0]]),
        # a second measure on another scale counts as much, a constant one not at all
        ([[0.0, 0.0, 7.0], [2.0, 2000.0, 7.0]], [[0.0, 2000.0, 7.0], [2.0, 0.0, 7.0]], [[2**0.5] * 2, [2**0.5] * 2]),
        # nan in every measure: no such head
        ([[0.0], [2.0]], [[2.0], [NAN], [0.0]], [[2.0, NAN, 0.0], [0.0, NAN, 2.0]]),
        # a measure that some head lacks does not count
        ([[0.0, 5.0], [2.0, NAN]], [[2.0, 1.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]]),
        # nothing tells these heads apart, or nothing was measured
        ([[3.0]], [[3.0]], [[0.0]]),
        ([[3.0], [NAN]], [[3.0], [NAN]], [[0.0, NAN], [NAN, NAN]]),
        ([[NAN]], [[NAN]], [[NAN]]),
    ],
)
def test_distances(one: list[list[float]], other: list[list[float]], expected: list[list[float]]) -> None:
    np.testing.assert_allclose(distances(np.array(one), np.array(other)), expected, atol=1e-12)


def test_random_heads_are_the_square_root_of_two_apart() -> None:
    one, other = np.random.default_rng(1).normal(size=(2, 400, 8))
    assert np.sqrt(np.square(distances(one, other)).mean()) == pytest.approx(2**0.5, rel=0.02)
