"""Heads by layer on Find: a point a head that exists, the chosen one marked, chance drawn where there is one."""

from typing import Any

import numpy as np
import pytest

from dashboard import theme
from dashboard.views.find.by_layer import by_layer

VALUES = np.array([[0.1, 0.4], [np.nan, 0.9]])


def test_a_point_a_head_that_exists() -> None:
    figure: Any = by_layer(VALUES, theme.Scale("Induction score", chance=0.03), (1, 1))
    assert [list(one.x) for one in figure.data] == [[0.1, 0.4], [0.9]]
    assert [list(one.y) for one in figure.data] == [[0, 0], [1]]
    assert [list(one.text) for one in figure.data] == [["", "L0H1"], ["L1H1"]]
    assert [list(one.marker.size) for one in figure.data] == [[9, 9], [14]]
    assert figure.data[1].customdata[0] == [1, 1]
    assert figure.layout.shapes[0].x0 == figure.layout.shapes[0].x1 == 0.03


def test_the_largest_of_each_layer_and_the_chosen_are_named() -> None:
    values = np.arange(64, dtype=float).reshape(4, 16)
    figure: Any = by_layer(values, theme.Scale("x"), (2, 3))
    texts = [[text for text in one.text if text] for one in figure.data]
    assert texts == [["L0H15"], ["L1H15"], ["L2H3", "L2H15"], ["L3H15"]]
    assert not figure.layout.shapes


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(4,\)"):
        by_layer(np.zeros(4), theme.Scale("x"))
