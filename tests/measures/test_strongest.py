"""The strongest induction head is the one whose score is farthest above its own control, or there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracer.measures.strongest import above_control, induction_head

NAN = math.nan


@pytest.mark.parametrize(
    ("scores", "control", "expected"),
    [
        ([[0.42, 0.1], [0.3, 0.2]], [[0.44, 0.1], [0.05, 0.1]], (1, 0)),  # the highest score is a place's
        ([[0.42, 0.1], [0.3, 0.2]], [[0.44, 0.1], [0.3, 0.25]], None),
        ([[0.42, 0.1], [0.3, 0.2]], [[NAN, NAN], [NAN, NAN]], (0, 0)),
        ([[0.42, 0.1], [0.3, NAN]], None, (0, 0)),
        ([[0.0, 0.0]], None, (0, 0)),
        ([[0.0, 0.0]], [[0.0, 0.0]], None),
        ([[NAN, 0.2], [0.3, NAN]], [[NAN, 0.1], [0.25, NAN]], (0, 1)),  # layers of fewer heads
        ([[NAN, NAN]], [[NAN, NAN]], None),
        ([[0.9, 0.2]], [[NAN, 0.1]], (0, 1)),  # a head without a control beside those with one
    ],
)
def test_the_strongest_by_hand(scores: list, control: list | None, expected: tuple[int, int] | None) -> None:
    assert induction_head(np.array(scores), None if control is None else np.array(control)) == expected


def test_what_is_above_the_control() -> None:
    scores, control = np.array([[0.5, NAN, 0.2]]), np.array([[0.1, NAN, 0.3]])
    np.testing.assert_allclose(above_control(scores, control), [[0.4, NAN, -0.1]])
    assert above_control(scores, None) is scores
