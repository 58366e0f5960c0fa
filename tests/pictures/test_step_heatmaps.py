"""Step heatmaps: when each head changed, in which order, and what the browser gets."""

from __future__ import annotations

import numpy as np
import pytest

from tracer.pictures import payload
from tracer.pictures.step_heatmap import NEVER, by_change, midpoints, pack

STEPS = np.arange(10) * 100


def jump(at: int, size: float = 1.0) -> list[float]:
    """0, and from the step of index `at` on `size`."""
    return [0.0] * at + [size] * (10 - at)


@pytest.mark.parametrize(
    "line, step",
    [
        (jump(4), 350),
        (jump(6, -1.0), 550),
        ([0, 0, 0, 0.4, 0.45, 0.6, 1, 1, 1, 1], NEVER),
        ([0.5] * 10, NEVER),
        ([0, 0, 0, 1, 1, 1, 0, 0, 0, 0], NEVER),
        (jump(4, 0.04), NEVER),
        ([np.nan, 0, 0, 0, 0, np.nan, 1, 1, 1, 1], NEVER),
        ([np.nan] * 10, NEVER),
    ],
)
def test_a_line_changes_halfway_between_its_levels(line: list[float], step: int) -> None:
    assert midpoints(STEPS, [line, jump(5)])[0] == step


def test_rows_are_in_the_order_of_their_changes_and_of_two_the_larger_move_is_first() -> None:
    lines = [[0.5] * 10, jump(6), jump(4, 0.5), jump(4, -1.0), jump(3, 0.3), jump(5, 0.01)]
    assert by_change(midpoints(STEPS, lines), lines).tolist() == [4, 3, 2, 1, 5, 0]


def test_what_the_browser_gets_are_the_measured_steps_of_the_heads_that_exist() -> None:
    values = np.full((10, 2, 2), np.nan)
    values[:, 0, 0], values[:, 0, 1], values[:, 1, 1] = jump(6), jump(4), 0.25
    values[2] = np.nan
    values[5, 1, 1] = np.inf
    header, arrays = payload.unpack(pack(STEPS, values))
    assert (header["labels"], header["groups"]) == (["L0H0", "L0H1", "L1H1"], [0, 0, 1])
    assert (header["changes"], header["order"]) == ([550, 350, NEVER], [1, 0, 2])
    assert arrays["steps"].tolist() == [0, 100, 300, 400, 500, 600, 700, 800, 900]
    assert (header["lo"], header["hi"]) == (0.0, 1.0)
    assert arrays["cells"][0].tolist() == [0] * 5 + [65534] * 4
    assert arrays["cells"][2, 4] == payload.MISSING
    assert np.delete(arrays["cells"][2], 4).tolist() == [16384] * 8  # 0.25 * 65534 = 16383.5, to the even one


def test_without_dates_rows_keep_their_layers_and_on_a_log_scale_zero_is_a_gap() -> None:
    values = np.full((10, 1, 2), 0.01)
    values[:, 0, 1] = [0.0, 0.0, 0.0, *[10.0] * 7]
    header, arrays = payload.unpack(pack(STEPS, values, dated=False, log=True))
    assert (header["changes"], header["order"], header["log"]) == ([], [0, 1], True)
    assert (header["lo"], header["hi"]) == (-2.0, 1.0)
    assert arrays["cells"].tolist() == [[0] * 10, [payload.MISSING] * 3 + [65534] * 7]


def test_a_run_that_measured_nothing_yet_has_an_empty_heatmap() -> None:
    header, arrays = payload.unpack(pack([0, 1], np.full((2, 2, 2), np.nan)))
    assert (header["labels"], header["order"], arrays["cells"].shape) == ([], [], (0, 0))


def test_a_flat_measure_and_a_single_step_are_heatmaps_too() -> None:
    header, arrays = payload.unpack(pack([7], np.full((1, 1, 2), 0.5)))
    assert (header["changes"], header["order"], header["lo"], header["hi"]) == ([NEVER, NEVER], [0, 1], 0.5, 1.5)
    assert arrays["cells"].tolist() == [[0], [0]]


@pytest.mark.parametrize("shape", [(3, 2), (2, 1, 1)])
def test_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="step layer head"):
        pack([0, 1, 2], np.zeros(shape))


def test_500_heads_over_1000_steps_fit_in_a_megabyte() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((1000, 20, 25)) * 0.1 + np.linspace(0, 1, 1000)[:, None, None]
    assert len(pack(np.arange(1000), values)) < 1.1e6
