"""Two patterns packed for one picture: what goes in comes out, and a difference only where there is one."""

import numpy as np
import pytest

from tracer.pictures.payload import unpack
from tracer.pictures.versus import Side, pack, same_tokens

A = np.array([[1.0, 0.0], [0.25, 0.75]])
B = np.array([[1.0, 0.0], [0.5, 0.5]])


def side(pattern=A, tokens=("x", "y"), keys=None, starts=(0, 0), title="L0H1 of tiny, step 10"):
    return Side(title, pattern, tokens, tokens if keys is None else keys, starts=starts)


def test_both_patterns_arrive_and_the_largest_change_is_said():
    header, arrays = unpack(pack(side(), side(B, title="L0H1 of other, step 20")))
    assert header["same"] and header["top"] == pytest.approx(0.25)
    for name, pattern in (("a", A), ("b", B)):
        np.testing.assert_allclose(arrays[name] / 65534, pattern, atol=1 / 131068)
    titles = [one["title"] for one in header["sides"]]
    assert titles == ["L0H1 of tiny, step 10", "L0H1 of other, step 20"]


def test_equal_patterns_have_nothing_to_colour():
    assert unpack(pack(side(), side()))[0]["top"] == 0


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (side(B), True),
        (side(B, tokens=("x", "z")), False),
        (side(B, keys=("y", "x")), False),
        (side(B, starts=(4, 4)), False),
        (side(np.eye(3), tokens=("x", "y", "z")), False),
    ],
)
def test_a_difference_needs_the_same_tokens_in_the_same_places(other, same):
    assert same_tokens(side(), other) is same
    header, arrays = unpack(pack(side(), other))
    assert header["same"] is same and arrays["b"].shape == np.shape(other.pattern)
    assert header["sides"][1]["starts"] == list(other.starts)
    assert same or header["top"] == 0


def test_hostile_strings_are_made_visible():
    mean = ("<script>", "a\nb\u202e")
    header, _ = unpack(pack(side(tokens=mean, title="L0H0 of \u202ebad\x00 run"), side(B, tokens=mean)))
    assert header["sides"][0]["tokens"] == ["<script>", "a⏎b‹U+202E›"]
    assert header["sides"][0]["title"] == "L0H0 of ‹U+202E›bad‹U+0000› run"


def test_a_pattern_and_tokens_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match=r"L0H1 of tiny.*shape \(2, 2\), there are 3 query tokens"):
        pack(side(tokens=("x", "y", "z")), side(B))
