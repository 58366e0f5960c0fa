"""The induction score over periods, of heads built by hand: one follows the repeat, one looks one distance back."""

import re

import numpy as np
import pytest

from tests.ablate.test_verdict import induction_circuit
from tracer.ablate import verdict
from tracer.analysis.induction_by_period import induction_by_period
from tracer.model import Transformer

DISTANCE = 8


def with_a_fixed_distance() -> Transformer:
    """The circuit by hand, whose L0H0 looks DISTANCE tokens back whatever they are."""
    model = induction_circuit()
    first = model.blocks[0].attn
    first.W_Q[0, 27:78] = first.W_Q[1, 27:78].roll(1 - DISTANCE, 1)  # q at p asks for p - 8
    first.W_K[0] = first.W_K[1]
    return model


def test_a_true_head_scores_at_every_period_and_a_fixed_distance_at_one() -> None:
    found = induction_by_period(with_a_fixed_distance())
    assert found.periods.tolist() == list(range(2, 14))
    np.testing.assert_allclose(found.score[:, 1, 0], 1, atol=1e-6)
    np.testing.assert_allclose(found.control[:, 1, 0], found.uniform, rtol=1e-5)  # where nothing matches, all is alike
    far = found.periods >= DISTANCE  # in shorter rows there is no token so far back
    only = (found.periods == DISTANCE + 1).astype(float)[far]
    np.testing.assert_allclose(found.score[far, 0, 0], only, atol=1e-6)
    np.testing.assert_allclose(found.control[far, 0, 0], only, atol=1e-6)
    by_hand = [np.mean([1 / (q + 1) for q in range(p + 1, 2 * p + 1)]) for p in found.periods]
    np.testing.assert_allclose(found.uniform, by_hand)


def test_the_card_is_not_fooled() -> None:
    prefix = verdict(with_a_fixed_distance(), 0, 0).tests[0]
    assert not prefix.passed and prefix.value == pytest.approx(1 / 8, abs=0.05)
    assert re.search(r"The same places get 0\.1[23] where nothing repeats", prefix.sentence)  # 1 / 8, before rounding


def test_periods_that_are_asked_for() -> None:
    model = induction_circuit()
    assert induction_by_period(model, [5, 3]).score.shape == (2, 2, 2)
    assert induction_by_period(model, []).score.shape == (0, 2, 2)
    with pytest.raises(ValueError, match="period of 14"):
        induction_by_period(model, [14])
