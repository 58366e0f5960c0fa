"""The head finder's language on four heads whose numbers are known."""

from __future__ import annotations

import numpy as np
import pytest

from tracer.analysis.head_query import find

VALUES = {
    "induction": np.array([[0.1, 0.2], [0.9, 0.6]]),
    "entropy": np.array([[3.0, 1.5], [0.5, np.nan]]),
    "entropy_normalised": np.array([[0.9, 0.5], [0.2, 0.8]]),
    "previous_token": np.array([[0.0, 0.8], [0.1, 0.4]]),
    "max_logit": np.array([[-2.0, 4.0], [8.0, 1.0]]),
}
THERE = np.ones((2, 2), bool)
EVERY = [(0, 0), (0, 1), (1, 0), (1, 1)]

CONTROLLED = {**VALUES, "induction_control": np.array([[0.0, 0.15], [0.95, 0.2]])}
"""The head of the highest score, L1H0, has it from a place."""


@pytest.mark.parametrize(
    ("line", "heads"),
    [
        ("top 1 induction", [(1, 1)]),
        ("top 9 induction", [(1, 1), (0, 0), (0, 1)]),
        ("bottom 1 induction", [(1, 0)]),
        ("induction > .15", [(1, 1), (0, 1), (1, 0)]),
    ],
)
def test_induction_heads_are_ranked_by_the_score_above_its_control(line: str, heads: list[tuple[int, int]]) -> None:
    found = find(line, CONTROLLED, THERE)
    assert found.heads == tuple(heads) and not found.note


def test_where_no_score_is_above_its_control_none_stands_out() -> None:
    found = find("top 2 induction", {**VALUES, "induction_control": VALUES["induction"]}, THERE)
    assert found.heads == () and found.note.startswith("None stands out")


@pytest.mark.parametrize(
    "line, heads",
    [
        ("L1H0", [(1, 0)]),
        ("l1h0", [(1, 0)]),
        ("L1.0", [(1, 0)]),
        ("L1H0 l0h1", [(0, 1), (1, 0)]),
        ("L1H0, L0H1", [(0, 1), (1, 0)]),
        ("L1", [(1, 0), (1, 1)]),
        ("layer 1", [(1, 0), (1, 1)]),
        ("layer 1, L0H0", [(0, 0), (1, 0), (1, 1)]),
        ("induction > 0.5", [(1, 0), (1, 1)]),
        ("INDUCTION>.5", [(1, 0), (1, 1)]),
        ("ind >= 0.6", [(1, 0), (1, 1)]),
        ("ind > 0.6", [(1, 0)]),
        ("ind ≥ 0.6", [(1, 0), (1, 1)]),
        ("entropy < 2", [(1, 0), (0, 1)]),
        ("Attention entropy < 2", [(1, 0), (0, 1)]),
        ("H < 2", [(1, 0), (0, 1)]),
        ("prev > .3", [(0, 1), (1, 1)]),
        ("Previous-token attention > .3", [(0, 1), (1, 1)]),
        ("previous_token > 3e-1", [(0, 1), (1, 1)]),
        ("max logit < −1", [(0, 0)]),
        ("layer 1 and induction < .7", [(1, 1)]),
        ("layer 1, induction < .7", [(1, 1)]),
        ("layer 1 & induction < .7", [(1, 1)]),
        ("layer 1 induction < .7", [(1, 1)]),
        ("induction > 0.5, or L0H0", [(1, 0), (1, 1), (0, 0)]),
        ("L0H0 or layer 1 and induction > .7", [(1, 0), (0, 0)]),
        ("not layer 1", [(0, 0), (0, 1)]),
        ("not not L1", [(1, 0), (1, 1)]),
        ("not induction > .15 and L0", [(0, 0)]),
        ("top 3 induction", [(1, 0), (1, 1), (0, 1)]),
        ("bottom 2 entropy", [(1, 0), (0, 1)]),
        ("top 9 entropy", [(0, 0), (0, 1), (1, 0)]),
        ("top 1 prev or top 1 ind", [(0, 1), (1, 0)]),
        ("induction > 2", []),
    ],
)
def test_a_line_names_these_heads_in_this_order(line: str, heads: list[tuple[int, int]]) -> None:
    assert list(find(line, VALUES, THERE).heads) == heads


@pytest.mark.parametrize(
    "line, nearest, measure",
    [
        ("induction > 2", (1, 0), "induction"),
        ("entropy < .4", (1, 0), "entropy"),
        ("induction > .95 and prev > .3", (1, 0), "induction"),  # misses by .2/.8 of prev, L1H1 by .35/.8 of induction
        ("induction > .5 and prev > .6", (1, 1), "induction"),  # it fits the first, and misses by .2/.8 of the other
        ("induction > .95 or prev > .81", (0, 1), "induction"),
        ("L0 and induction > .5", (0, 1), "induction"),  # of those in layer 0 it misses by less
        ("L0 and L1", None, None),
    ],
)
def test_where_none_fits_the_nearest_is_named(line: str, nearest: tuple[int, int] | None, measure: str | None) -> None:
    found = find(line, VALUES, THERE)
    assert (found.heads, found.nearest, found.measure) == ((), nearest, measure)


@pytest.mark.parametrize(
    "line, said",
    [
        ("indction > .5", "“indction” is not a measure. Did you mean induction? Measures: induction, entropy, "),
        ("ent > .5", "“ent” could be entropy or entropy normalised: write more of it"),
        ("zzz > .5", "“zzz” is not a measure. Measures: induction, entropy, entropy normalised, previous token, max"),
        ("induction", "Compare it, as in: induction > 0.5"),
        ("induction > high", "“high” is not a number"),
        ("induction >", "The end of the line is not a number"),
        ("induction > .5 and", "The end of the line is not expected here"),
        ("L7H1", "There is no L7H1: layers are L0 to L1, heads H0 to H1."),
        ("L1H2", "There is no L1H2: layers are L0 to L1, heads H0 to H1."),
        ("layer 5", "There is no L5"),
        ("layer x", "“x” is not a layer: write layer 0 to 1"),
        ("top many induction", "“many” is not a number of heads"),
        ("top 0 induction", "“0” is not a number of heads"),
        ("top 3", "top 3 of what? Measures: induction"),
        ("top 3 or", "top 3 of what?"),
        ("bottom 3", "bottom 3 of what?"),
        ("$x", "“$” is not expected here"),
        ("<script>alert(1)</script>", "“<” is not expected here"),
        ("0.5", "“0.5” is not expected here"),
    ],
)
def test_what_is_not_understood_is_said(line: str, said: str) -> None:
    with pytest.raises(ValueError) as error:
        find(line, VALUES, THERE)
    assert said in str(error.value)


def test_heads_that_do_not_exist_are_never_named() -> None:
    there = np.array([[True, True], [True, False]])
    assert find("layer 1", VALUES, there).heads == ((1, 0),)
    assert find("not L1H0", VALUES, there).heads == ((0, 0), (0, 1))
    assert find("top 4 induction", VALUES, there).heads == ((1, 0), (0, 1), (0, 0))
    with pytest.raises(ValueError, match="heads H0 to H0"):
        find("L1H1", VALUES, there)


def test_no_line_is_too_deep_to_read() -> None:
    assert list(find("not " * 5000 + "L0", VALUES, THERE).heads) == [(0, 0), (0, 1)]
    assert list(find(" or ".join(["L0H0 and L0"] * 3000), VALUES, THERE).heads) == [(0, 0)]
