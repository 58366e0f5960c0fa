"""Bands: Student's interval of so many sequences as a trace says, whose quantiles are in every table."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import t

from tracer.measures import SE, SEQUENCES
from tracer.measures.intervals import margins, student


def test_every_quantile_is_that_of_a_table() -> None:
    """Four decimals up to 30 degrees of freedom; beyond, one term of an expansion, whose error shrinks with theirs."""
    assert [student(n) for n in range(1, 31)] == pytest.approx(t.ppf(0.975, range(1, 31)), abs=5.1e-5)
    assert [student(n) for n in (31, 60, 1000)] == pytest.approx(t.ppf(0.975, (31, 60, 1000)), abs=4e-3)


@pytest.mark.parametrize(
    ("attrs", "quantile"),
    [({SEQUENCES: 2}, 12.706), ({SEQUENCES: 8}, 2.365), ({SEQUENCES: 31}, 2.042), ({SEQUENCES: 41}, 2.021), ({}, 1.96)],
)
def test_a_band_is_as_wide_as_its_sequences_are_few(attrs: dict[str, int], quantile: float) -> None:
    trace = xr.Dataset({"entropy" + SE: ("step", np.array([0.5, np.nan]), attrs)})
    found = margins(trace, "entropy")
    assert found is not None and found[0] == pytest.approx(quantile / 2, rel=1e-3) and np.isnan(found[1])
    assert margins(trace, "induction") is None
