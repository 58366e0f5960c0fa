"""Dates of half of the way, against what is read off curves by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

import tracer

NAN = math.nan
STEPS = [0, 10, 20, 40]


@pytest.mark.parametrize(
    ("values", "given", "date"),
    [
        ([0, 0, 1, 1], {}, 15),
        ([4, 4, 1, 0], {}, 10 + 10 * 2 / 3),  # it falls: half is 2
        ([0, 2, 2, 2], {}, 5),
        ([0, 1, 2, 2], {}, 10),  # a record at half is past it
        ([0, 2, 0, 2], {}, 30),  # of two crossings the last
        ([0, 0.5, 1, 8], {}, 20 + 20 * 3 / 7),  # it still grows,
        ([0, 0.5, 1, 8], {"end": 1}, 10),  # and does not to this level
        ([2, 2, 4, 4], {"start": 0, "end": 4}, NAN),  # past half at the first record
        ([3, 2, 0, 0], {"start": 4}, 10),
        ([0, 1, 4, 3], {"end": 8}, NAN),  # not past it at the last
        ([0, 5, 5, 4], {"end": 8}, 8),
        ([3, 1, 8, 8], {"start": 4, "end": 8}, 10 + 10 * 5 / 7),  # away at first
        ([1, 1, 1, 1], {}, NAN),  # it never moves
        ([1, 1, 1, 1], {"start": 0}, NAN),
        ([0, 1, 2, 3], {"least": 3}, NAN),
        ([0, 1, 2, 3], {"least": 2.9}, 15),
        ([0, 1, 0, NAN], {}, NAN),  # back where it began, as far as is known
        ([NAN, 0, NAN, 1], {}, 25),  # records without a number are left out
        ([0, math.inf, 1, 1], {}, 10),
        ([NAN, NAN, NAN, 1], {}, NAN),
        ([NAN] * 4, {}, NAN),
        ([0, 0, 1, 1], {"end": NAN}, NAN),
    ],
)
def test_dates_are_those_that_are_read_off_by_hand(values: list[float], given: dict[str, float], date: float) -> None:
    assert tracer.halfway(values, STEPS, **given) == pytest.approx(date, nan_ok=True)


def test_a_curve_of_a_trace_says_its_steps_and_what_is_none_is_refused() -> None:
    scores = xr.DataArray(np.arange(8.0).reshape(4, 2), dims=("step", "head"), coords={"step": STEPS})
    assert tracer.halfway(scores[:, 1]) == tracer.halfway(scores.max("head")) == 15
    wrong: list[tuple[Any, Any, str]] = [
        (scores, None, r"not \[step, head\]: take one head"),
        ([0, 1], None, "give steps="),
        ([0, 1], [0, 1, 2], "3 steps and 2 values"),
        ([0, 1, 2], [0, 2, 1], "steps must rise"),
    ]
    for curve, steps, words in wrong:
        with pytest.raises(ValueError, match=words):
            tracer.halfway(curve, steps)


def test_noise_that_ends_where_it_began_is_dated_by_least_alone() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, (200, 50))
    dated = [tracer.halfway(one, range(50), least=0.1) for one in noise]
    assert np.isnan(dated).all()
    moved = noise + (np.arange(50) >= 30)
    assert all(29 <= tracer.halfway(one, range(50), least=0.1) <= 30 for one in moved)
