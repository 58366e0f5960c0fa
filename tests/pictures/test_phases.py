"""What the parts of the Phases page are sent."""

import numpy as np
import pytest

from tracer.pictures import path, surface, timeline
from tracer.pictures.payload import MISSING, unpack


def test_lanes_share_an_axis_and_keep_their_own_range() -> None:
    blob = timeline.timeline(
        [([0, 10, 20], [1.0, 2.0, 3.0]), ([10, 30], [-5.0, 5.0]), ([0], [7.0])],
        ["a", "b", "c"], units=["nats", "", ""], windows=[(0, 10, 20), None, None], numbers=[1, None, None],
    )  # fmt: skip
    head, arrays = unpack(blob)
    assert arrays["steps"].tolist() == [0, 10, 20, 30]
    assert head["ranges"] == [[1, 3], [-5, 5], [7, 8]]
    assert head["windows"] == [[0, 10, 20], None, None] and head["numbers"] == [1, None, None]
    assert arrays["lines"].tolist() == [
        [0, (MISSING - 1) // 2, MISSING - 1, MISSING],
        [MISSING, 0, MISSING, MISSING - 1],
        [0, MISSING, MISSING, MISSING],
    ]


def test_a_timeline_of_nothing() -> None:
    head, arrays = unpack(timeline.timeline([], [], units=[], windows=[]))
    assert head["labels"] == [] and arrays["lines"].shape == (0, 0)


def test_a_timeline_without_a_label() -> None:
    with pytest.raises(ValueError, match="1 curves, 0 labels"):
        timeline.timeline([([0], [1.0])], [], units=[""], windows=[None])


def test_a_surface_leaves_out_what_was_not_measured() -> None:
    head, arrays = unpack(surface.surface([0, 5, 9], [[1, 3], [np.nan, np.nan], [2, 1]]))
    assert arrays["steps"].tolist() == [0, 9] and (head["lo"], head["hi"]) == (1, 3)
    assert arrays["cells"].tolist() == [[0, MISSING - 1], [(MISSING - 1) // 2, 0]]
    with pytest.raises(ValueError, match=r"over 2 steps, got shape \(3, 1\)"):
        surface.surface([0, 1], np.zeros((3, 1)))


@pytest.mark.parametrize(
    ("values", "signed", "expected"),
    [
        (np.linspace(0, 100, 101), False, (1, 99)),
        (np.linspace(-100, 50, 151), True, (-98.5, 98.5)),
        ([4.0, 4.0], False, (4, 5)),
        ([np.nan], True, (-1, 1)),
        ([np.nan], False, (0, 1)),
        ([0.0, 0.0], True, (-1, 1)),
    ],
)
def test_limits_of_colours(values, signed: bool, expected: tuple[float, float]) -> None:
    assert surface.limits(values, signed=signed) == pytest.approx(expected)


def test_a_path_keeps_its_points() -> None:
    head, arrays = unpack(path.path([0, 5], [[0.5, 1], [2, -3]], [0.75, 0.25]))
    assert head["shares"] == [0.75, 0.25] and arrays["points"].tolist() == [[0.5, 1], [2, -3]]
    with pytest.raises(ValueError, match=r"over 2 steps, got shape \(2, 3\)"):
        path.path([0, 5], np.zeros((2, 3)), [1, 0])
