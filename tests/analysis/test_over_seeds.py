"""The mean over seeds."""

import numpy as np
import pytest
import xarray as xr

from tracer.analysis.over_seeds import mean_over_seeds


def trace(values: list[float], steps: list[int]) -> xr.Dataset:
    return xr.Dataset({"val_loss": ("step", values)}, {"step": steps})


def test_mean_and_ends_are_those_of_the_seeds():
    values = np.random.default_rng(0).normal(3, 1, (4, 5))
    found = mean_over_seeds([trace(list(row), list(range(5))) for row in values], ["val_loss", "not recorded"])
    assert list(found) == ["val_loss", "val_loss_lowest", "val_loss_highest"] and found.attrs["seeds"] == 4
    np.testing.assert_allclose(found["val_loss"], values.sum(0) / 4)
    np.testing.assert_array_equal(found["val_loss_lowest"], np.sort(values, axis=0)[0])
    np.testing.assert_array_equal(found["val_loss_highest"], np.sort(values, axis=0)[-1])


def test_steps_that_one_lacks_are_left_out_and_a_missing_number_stays_missing():
    found = mean_over_seeds(
        [trace([1, 2, 3], [0, 5, 10]), trace([3, np.nan, 5], [0, 5, 10]), trace([5, 6], [0, 5])], ["val_loss"]
    )
    assert found["step"].values.tolist() == [0, 5]
    assert found["val_loss"].values[0] == 3 and np.isnan(found["val_loss"].values[1])


def test_two_are_no_spread():
    with pytest.raises(ValueError, match="at least 3 runs, not of 2"):
        mean_over_seeds([trace([1], [0])] * 2, ["val_loss"])
