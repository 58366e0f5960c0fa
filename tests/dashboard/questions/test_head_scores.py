"""Which heads a trace knows, and which of them stands out."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from dashboard.loading import head_scores

NAN = float("nan")
STEPS = [0, 10, 30]
AXES = ("step", "layer", "head")


def trace(**measures: object) -> xr.Dataset:
    """Three steps of two layers of three heads; a measure that is given for one step was so at each."""
    arrays = {name: np.broadcast_to(np.asarray(value, float), (3, 2, 3)).copy() for name, value in measures.items()}
    return xr.Dataset(
        {name: (AXES, array) for name, array in arrays.items()},
        {"step": STEPS, "layer": [0, 1], "head": [0, 1, 2]},
    )


def test_what_is_all_nan_is_not_held() -> None:
    found = trace(induction=NAN, entropy=0.5, max_logit=[[1, NAN, NAN], [NAN] * 3], mine=1)
    assert [head_scores.holds(found, name) for name in ("induction", "entropy", "max_logit", "absent")] == [
        False, True, True, False,
    ]  # fmt: skip
    assert head_scores.head_measures(found) == ["entropy", "max_logit", "mine"], "in the registry's order, then others"


@pytest.mark.parametrize(
    ("values", "predicts"),
    [
        ({}, False),
        ({"val_loss": (1.0, {})}, True),
        ({"val_loss": (1.0, {"units": "nats"})}, True),
        ({"val_loss": (1.0, {"units": ""})}, False),
        ({"val_loss": (NAN, {})}, False),
        ({"repeat_loss": (1.0, {})}, True),
        ({"val_loss": (1.0, {"units": ""}), "repeat_loss": (2.0, {})}, True),
    ],
)
def test_whether_its_loss_is_that_of_the_next_token(values: dict, predicts: bool) -> None:
    found = xr.Dataset({name: ("step", [value], attrs) for name, (value, attrs) in values.items()}, {"step": [0]})
    assert head_scores.predicts_tokens(found) is predicts


def test_a_head_exists_that_was_measured_once() -> None:
    once = np.full((3, 2, 3), NAN)
    once[1, 0, 2] = once[2, 1, 0] = 1
    assert head_scores.head_exists(trace(induction=once, entropy=NAN)).tolist() == [
        [False, False, True], [True, False, False],
    ]  # fmt: skip
    assert head_scores.head_exists(trace(entropy=NAN)).tolist() == [[True] * 3] * 2, "of none it is not known"


def test_a_measure_at_the_row_nearest_to_a_step() -> None:
    values = np.arange(18.0).reshape(3, 2, 3)
    found = trace(entropy=values)
    for step, row in ((0, 0), (5, 0), (6, 1), (29, 2), (None, 2)):
        np.testing.assert_array_equal(head_scores.head_means(found, "entropy", step), values[row])
    np.testing.assert_array_equal(head_scores.head_means(found, "induction"), np.full((2, 3), NAN))


SCORES = [[0.1, 0.9, NAN], [0.6, 0.5, 0.2]]
CONTROL = [[0.0, 0.8, NAN], [0.2, 0.3, 0.3]]


def test_heads_are_ranked_by_what_is_above_their_control() -> None:
    found = trace(induction=SCORES, induction_control=CONTROL)
    np.testing.assert_allclose(head_scores.above_control(found), [[0.1, 0.1, NAN], [0.4, 0.2, -0.1]])
    assert head_scores.induction_head(found) == head_scores.default_head(found) == (1, 0)
    assert head_scores.named("top 1 induction", found).heads == ((1, 0),)
    below = trace(induction=SCORES, induction_control=[[0.2, 1.0, NAN], [0.9, 0.8, 0.25]])
    assert head_scores.induction_head(below) is None and head_scores.default_head(below) == (1, 2)


def test_without_that_score_the_head_that_is_sharpest_or_the_first() -> None:
    sharp = trace(entropy_normalised=[[NAN, 0.8, 0.7], [0.3, 0.9, 0.4]])
    assert head_scores.default_head(sharp) == (1, 0) and head_scores.induction_head(sharp) is None
    assert head_scores.default_head(trace(max_logit=[[NAN, NAN, 2], [3, 4, 5]])) == (0, 2)


def test_the_score_of_a_head_in_words() -> None:
    found = trace(induction=SCORES, induction_control=CONTROL)
    assert head_scores.induction_words(found, (1, 0), None) == (
        "Induction score of L1H0: 0.60. Control, where nothing repeats: 0.20."
    )
    assert head_scores.induction_words(trace(induction=SCORES), (0, 1), 10) == (
        "Induction score of L0H1: 0.90. Control, where nothing repeats: not recorded in this run."
    )


def test_the_largest_of_those_that_are_known() -> None:
    assert head_scores.top_head(np.array([[NAN, 1, 2], [3, 0, NAN]])) == (1, 0)
    assert head_scores.top_head(np.array([[1.0, 5, 5]])) == (0, 1), "the first of two"
    assert head_scores.top_head(np.full((2, 2), NAN)) is None
