"""A user's measure: what is said of it, what is refused, and what becomes of one that fails."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tracer.heads.own_measures import OwnMeasure, OwnMeasures, given, measure
from tracer.heads.row_block import RowBlock
from tracer.measures import Setting, described
from tracer.measures.described import out_of_range

ROWS = RowBlock(torch.full((2, 3, 4, 5), 0.2), torch.zeros(2, 3, 4), 0, 0, True, None, {})


def on_nothing(rows: RowBlock) -> Any:
    """1 - sum_k A_qk"""
    return 1 - rows.pattern.sum(-1)


def summed(rows: RowBlock) -> Any:
    return rows.pattern.sum(-1)


def test_what_it_says_of_itself_is_read_back_without_its_code() -> None:
    one = measure(
        on_nothing, label="Attention on nothing", unit="share", range=(0, 1), chance=0.25, source="Miller 2023",
        worse="high", note="a note", palette="diverging",
    )  # fmt: skip
    back = described("on_nothing", ("step", "layer", "head"), one.row.attributes(Setting(0, 0, 0)))
    for name in ("label", "unit", "low", "high", "source", "worse", "note", "palette", "formula", "short", "probe"):
        assert getattr(back, name) == getattr(one.row, name), name
    assert (back.formula, back.at_chance(Setting(9, 9, 9))) == ("1 - sum_k A_qk", 0.25)


def test_a_bare_function_will_do() -> None:
    (one,) = given(on_nothing)
    assert (one.row.name, one.row.label, one.row.source) == ("on_nothing", "On nothing", f"{__name__}:on_nothing")
    assert one.code == f"{__name__}:on_nothing"


@pytest.mark.parametrize(
    ("options", "why"),
    [({"range": (1, 0)}, "must rise"), ({"worse": "up"}, "worse='up'"), ({"palette": "viridis"}, "palette='viridis'")],
)
def test_what_cannot_be_said_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"measure on_nothing: .*{why}"):
        measure(on_nothing, **options)


@pytest.mark.parametrize("name", ["entropy", "layer", "_mine", "mine_se", "<lambda>", "x" * 81])
def test_a_name_that_is_taken_or_none_is_refused(name: str) -> None:
    def function(rows: RowBlock) -> Any: ...

    function.__name__ = name
    with pytest.raises(ValueError, match="cannot be the name of a measure"):
        measure(function)


def test_two_of_one_name_and_what_is_no_function_are_refused() -> None:
    with pytest.raises(ValueError, match="two are called on_nothing"):
        given([on_nothing, measure(on_nothing)])
    with pytest.raises(ValueError, match="a float is no function of rows"):
        given(["math:pi"])


def test_one_that_fails_is_said_once_and_the_others_go_on() -> None:
    said: list[str] = []

    def wrong_shape(rows: RowBlock) -> Any:
        return rows.pattern

    def broken(rows: RowBlock) -> Any:
        raise KeyError("no such head")

    own = OwnMeasures(given([wrong_shape, on_nothing, broken]), said.append)
    asked = own.on("text")
    assert asked is not None and own.on("repeat") is None
    for _ in range(2):
        found = asked(ROWS)
        assert found["wrong_shape"].isnan().all() and found["broken"].isnan().all()
        torch.testing.assert_close(found["on_nothing"], torch.zeros(2, 3, 4))
    assert len(said) == 2
    assert "wrong_shape" in said[0] and "gives [2, 3, 4, 5], and not one number a row" in said[0]
    assert f"({__name__}:test_one_that_fails" in said[1] and "raised KeyError: 'no such head'" in said[1]


def test_one_that_is_nan_in_every_head_is_said_once() -> None:
    said: list[str] = []
    own = OwnMeasures(given([on_nothing]), said.append)
    for value in (torch.tensor([[1.0, float("nan")]]), torch.full((1, 2), float("nan")), torch.full((1, 2), torch.nan)):
        own.seen({"on_nothing": value.numpy(), "entropy": value.numpy()})
    assert said == [f"the measure on_nothing ({__name__}:on_nothing) is nan in every head"]


def test_a_number_of_a_whole_kind_is_taken_too() -> None:
    """bool and int rows, which are means of yes and no."""

    def over_half(rows: RowBlock) -> Any:
        return rows.pattern.amax(-1) > 0.1

    asked = OwnMeasures(given(over_half), print).on("text")
    assert asked is not None
    assert asked(ROWS)["over_half"].dtype == torch.float32 and bool((asked(ROWS)["over_half"] == 1).all())


def test_it_can_be_called_as_the_function_that_it_is() -> None:
    one: OwnMeasure = measure(range=(0, 1))(on_nothing)
    torch.testing.assert_close(one(ROWS), torch.zeros(2, 3, 4))


def test_what_training_does_not_pay_for_rests() -> None:
    said: list[str] = []
    of = OwnMeasures(given([on_nothing, summed]), said.append)
    ask, took = of.on("text"), {"on_nothing": 4.0, "summed": 8.0}
    assert ask is not None
    of.begins(0.0)
    for name, seconds in took.items():
        of.took(name, seconds)
    of.begins(0.0)  # 12 s are spent, and 10 are free
    assert (
        of.resting == {"on_nothing", "summed"}
        and len(said) == 2
        and "on_nothing" in said[0]
        and "it took 4 s" in said[0]
    )
    assert all(bool(value.isnan().all()) for value in ask(ROWS).values())
    of.begins(61.0)  # a tenth of which pays for 4 s more, and not for 8
    assert of.resting == {"summed"} and len(said) == 2
    of.begins(0.0, must=True)
    assert of.resting == set()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[0.2, float("nan")], [1.0, 1.00001]], None),
        ([[0.2, 5.0], [-1.0, 0.5]], "is -1, and its range= says 0 to 1"),
        ([[0.2, 5.0], [0.0, 0.5]], "is 5, and its range= says 0 to 1"),
        ([[0.2, float("inf")], [0.0, float("nan")]], "is infinite in some head"),
    ],
)
@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_a_value_that_cannot_be_is_said_once(values: list[list[float]], words: str | None, kind: Any) -> None:
    def share(rows: RowBlock) -> Any:
        return rows.pattern[..., 0]

    said: list[str] = []
    those = OwnMeasures(given(measure(share, range=(0, 1))), said.append)
    for _ in range(2):
        those.seen({"share": kind(values)})
    assert len(said) == (words is not None) and all(one.endswith(f"share) {words}") for one in said)
    said.clear()
    OwnMeasures(given(share), said.append).seen({"share": kind([[7.0, -3.0]])})
    assert said == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([-0.9e-4, 1 + 0.9e-4], ""), ([math.nan], ""), ([-1.1e-4, 0.5], "is -0.00011, and its range= says 0 to 1"),
        ([0.5, 1.00011], "is 1.00011, and its range= says 0 to 1"),
        ([-math.inf, 2.0], "is -inf, and its range= says 0 to 1"),
    ],
)  # fmt: skip
def test_what_rounding_makes_of_an_end_is_within_its_range(values: list[float], words: str) -> None:
    assert out_of_range(np.array(values), 0, 1) == words
    assert out_of_range(np.array(values), None, None) == ""
