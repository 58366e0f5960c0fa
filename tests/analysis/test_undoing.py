"""What a head undoes, by hand."""

import numpy as np
import pytest

from tracer.analysis.undoing import undoing


def test_by_hand() -> None:
    before = np.array([[2.0, 5.0, 9.0], [4.0, 5.0, 7.0]])  # means 3, 5, 8
    end = np.array([[3.0, 2.0, 4.0], [3.0, 2.0, 4.0]])  # 0, 3 and 4 nats down: 5 along (0, -0.6, -0.8)
    undoes, leaves = end + [0, 3, 4], end + [7, 4, -3]
    found = undoing(before, np.stack([end, undoes, leaves]))
    np.testing.assert_allclose(found.moved, [0, -3, -4])
    np.testing.assert_allclose(found.without, [[0, 3, 4], [7, 4, -3]])
    np.testing.assert_allclose(found.dots, [-5, 0], atol=1e-12)
    assert found.distance == pytest.approx(5)


def test_means_are_summed_in_float64() -> None:
    """Of 2^24 and two ones, which float32 cannot add."""
    losses = np.array([[2**24], [1], [1]], np.float32)
    found = undoing(losses, np.stack([losses, losses + np.array([[0], [3], [3]], np.float32)]))
    assert found.moved.tolist() == [0] and found.without.tolist() == [[2]]
