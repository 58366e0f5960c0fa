"""Bands: Student's interval of so many sequences as a trace says, whose quantiles are in every table."""

import numpy as np
import pytest
import xarray as xr
from scipy.special import stdtrit

from tracer.measures import MEASURES, SE, SEQUENCES
from tracer.measures.intervals import margins, student, student_tails, within


def test_every_quantile_is_that_of_a_table() -> None:
    """Printed in every textbook, and in scipy to all digits; the tails beyond a quantile hold what is left."""
    table = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 10: 2.2281, 30: 2.0423, 60: 2.0003, 120: 1.9799}
    assert {free: student(free) for free in table} == pytest.approx(table, abs=5.1e-5)
    for free, t in table.items():
        assert student_tails(np.array([t, -t, 0.0]), free) == pytest.approx([0.05, 0.05, 1], abs=1e-5)
    for free in (1, 2, 3, 7, 15, 16.5, 31, 127, 1023, 65535):
        assert student(free) == pytest.approx(float(stdtrit(free, 0.975)), rel=1e-9)
    assert float(student_tails(np.array(1.0), 1)) == pytest.approx(0.5)  # Cauchy's distribution


@pytest.mark.parametrize(
    ("attrs", "quantile"),
    [({SEQUENCES: 2}, 12.706), ({SEQUENCES: 8}, 2.365), ({SEQUENCES: 31}, 2.042), ({SEQUENCES: 41}, 2.021), ({}, 1.96)],
)
def test_a_band_is_as_wide_as_its_sequences_are_few(attrs: dict[str, int], quantile: float) -> None:
    trace = xr.Dataset({"entropy" + SE: ("step", np.array([0.5, np.nan]), attrs)})
    found = margins(trace, "entropy")
    assert found is not None and found[0] == pytest.approx(quantile / 2, rel=1e-3) and np.isnan(found[1])
    assert margins(trace, "induction") is None


@pytest.mark.parametrize(
    ("measure", "low", "high"),
    [
        ("induction", [0, 0.4, 0, -0.2], [1, 0.6, 1, 1]),  # a share, and a value that is none
        ("val_loss", [0, 0.4, 0, -0.2], [3.5, 0.6, 3.9, 2.8]),
        ("icl_score", [-2.5, 0.4, -2.1, -3.2], [3.5, 0.6, 3.9, 2.8]),
    ],
)  # fmt: skip
def test_a_band_ends_where_its_measure_can(measure: str, low: list[float], high: list[float]) -> None:
    values, around = np.array([0.5, 0.5, 0.9, -0.2]), np.array([3, 0.1, 3, 3])
    np.testing.assert_allclose(within(values, around, MEASURES[measure]), [low, high], atol=1e-12)
    assert np.isnan(within(values, around * np.nan, MEASURES[measure])).all()
