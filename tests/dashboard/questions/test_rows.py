"""Which rows are drawn and how tensors are called, at the edges of what `tests/dashboard/test_figures.py` says."""

from __future__ import annotations

import numpy as np
import pytest

from dashboard.loading import rows

NAN = float("nan")


def test_a_stage_is_reached_within_rounding_and_not_before() -> None:
    """Half way from 1 to 0 is 0.5: to 1e-12, which is what sums of floats may be off."""
    assert rows.stages([1.0, 0.5 + 1.2e-12, 0.5 + 1e-12, 0.25, 0.0], 3) == [0, 2, 4]
    assert rows.stages([NAN, 2.0, 1.0], 3) == [0, 2], "no level is known, so only both ends are left"
    assert rows.stages([4.0, 0.0, 0.0], 2) == [0, 2], "the last row stands for the last level"


@pytest.mark.parametrize(
    ("values", "wide"), [([1.0, 100.0], False), ([2.0, 150.0], False), ([], False), ([0.5, 51.0], True)]
)
def test_wide_is_more_than_a_hundredfold(values: list[float], wide: bool) -> None:
    assert rows.wide_range(values) is wide


def test_every_part_of_a_name_that_tells_it_apart_is_kept() -> None:
    params = [
        "net.core.wte.weight", "net.core.enc.h.0.attn.W_O", "net.core.enc.h.0.mlp.attn", "net.core.enc.h.0.attn.q.b",
        "net.core.mid.h.0.attn.W_Q", "net.core.dec.h.12.ln", "net.core.W_U", "net.core.out.norm.weight",
    ]  # fmt: skip
    assert rows.short_names(params) == [
        "wte", "enc L0 W_O", "enc L0 mlp.attn", "enc L0 attn.q.b", "mid L0 W_Q", "dec L12 ln", "W_U", "out.norm",
    ]  # fmt: skip
    groups, names = rows.families(params)
    assert names == ["embeddings", "enc layer 0", "mid layer 0", "dec layer 12", "output"]
    assert groups == [0, 1, 1, 1, 2, 3, 4, 4]


def test_names_of_one_stack_two_stacks_and_none() -> None:
    assert rows.short_names(["a.h.0.x", "a.h.1.x"]) == ["L0 x", "L1 x"]
    assert rows.short_names(["enc.0.x", "dec.0.x"]) == ["enc L0 x", "dec L0 x"]
    assert rows.short_names(["a.b.x", "a.c.x"]) == ["b.x", "c.x"]
    assert rows.short_names([]) == [] and rows.families([]) == ([], [])
    assert rows.families(["x", "y.weight"]) == ([0, 0], ["embeddings"])


def test_lines_of_different_steps_share_an_axis() -> None:
    steps, values = rows.merge([([5, 20], [1.0, 2.0]), ([0, 5, 10], [3.0, NAN, 5.0])])
    assert steps.tolist() == [0, 5, 10, 20]
    np.testing.assert_array_equal(values, [[NAN, 1, NAN, 2], [3, NAN, 5, NAN]])


@pytest.mark.parametrize(
    ("n", "most", "expected"), [(0, 3, []), (1, 3, [0]), (3, 3, [0, 1, 2]), (7, 3, [0, 3, 6]), (61, 2, [0, 60])]
)
def test_some_of_many_at_equal_distances(n: int, most: int, expected: list[int]) -> None:
    assert rows.evenly(n, most).tolist() == expected
