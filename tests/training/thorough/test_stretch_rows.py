"""Rows behind a stretch: effects against exact ones, trainings without rows made by hand, dates by their definition.

What the first tier leaves.
"""

from typing import Any

import numpy as np
import pytest

from tests.training.test_stretch_rows import FIRST, HEAD, LAST, run, told  # noqa: F401
from tracer.store import Run
from tracer.training.stretch_rows import agreement
from tracer.training.which_rows import which_rows


def test_effects_are_nearly_those_of_steps_without_a_row(run: Run, told: Any) -> None:
    for step in range(FIRST, LAST):
        one = which_rows(run, step, HEAD)
        found, exact = told["effect"].sel(step=step).values, one["effect"].values
        assert np.corrcoef(found, exact)[0, 1] > 0.99
        assert told["score"].sel(step=step) == pytest.approx(one.attrs["before"], abs=1e-7)
        np.testing.assert_array_equal(told["mixed_in"].sel(step=step), one["mixed_in"])
        if step == told.attrs["exact_step"]:
            np.testing.assert_allclose(told["exact"], exact, atol=1e-8)
            slope = (found * exact).sum() / (found**2).sum()
            assert agreement(told) == (step, pytest.approx(slope, rel=1e-3), pytest.approx(1, abs=0.01))
    largest = np.abs(told["effect"]).max("row")
    assert told.attrs["exact_step"] == int(largest["step"][largest.argmax("step")])
    rows = told.attrs["rows"]
    assert [row["effect"] for row in rows] == sorted(told["effect"].values.ravel().tolist(), reverse=True)
    for row in rows:
        one = which_rows(run, row["step"], HEAD)
        assert row["text"] == str(one["text"].values[row["row"]])
