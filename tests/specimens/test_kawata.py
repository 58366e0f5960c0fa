"""Rows, tests and dates of the second paper, against exact fractions and heads written by hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from tracer.specimens.paper_folder import load


def module(name: str) -> Any:
    load("kawata")
    return importlib.import_module(f"kawata.{name}")


UNIFORM = {"20": (20, 20), "19-21": (19, 21), "15-25": (15, 25), "8-30": (8, 30), "6-28": (6, 28)}
RUNS = (*UNIFORM, "linear", "1-37")


def lengths(run: str) -> dict[int, Fraction]:
    """The chance of each length of the block, as fractions, by the names of the runs."""
    low, high = {**UNIFORM, "linear": (6, 24), "1-37": (1, 37)}[run]
    weights = {one: Fraction(one if run == "linear" else 1) for one in range(low, high + 1)}
    return {one: weight / sum(weights.values()) for one, weight in weights.items()}


def test_runs_draw_the_lengths_of_their_names() -> None:
    paper = module("paper").paper
    for name, (low, high) in UNIFORM.items():
        data = paper.runs[name].config.data
        assert (data.corpus, data.period_min, data.period_max) == ("repeated-random", low, high)
    for name, like in {"linear": "linear", "1-37": "1-37", "20-anywhere": "20", "8-30-anywhere": "8-30"}.items():
        chances = paper.runs[name].code["corpus"].chances
        assert {one: Fraction(of, sum(chances.values())) for one, of in chances.items()} == lengths(like)


def test_equal_means_and_the_ratio_of_the_theorem() -> None:
    ratio = module("copies").max_sum_ratio
    exact = {}
    for run in RUNS:
        terms = [chance / length for length, chance in lengths(run).items()]
        exact[run] = max(terms) / sum(terms)
        assert ratio({one: float(of) for one, of in lengths(run).items()}) == pytest.approx(float(exact[run]))
    for run, mean in {"6-28": 17, "linear": 17, "8-30": 19, "1-37": 19}.items():
        assert sum(length * chance for length, chance in lengths(run).items()) == mean
    assert exact["20"] == 1 and exact["linear"] == Fraction(1, 19)  # the least of 19 lengths
    told = {"19-21": 0.35, "15-25": 0.12, "8-30": 0.09, "6-28": 0.10, "linear": 0.05, "1-37": 0.24}
    assert {run: round(float(exact[run]), 2) for run in told} == told


@pytest.mark.parametrize("name", ["Linear", "Even", "ManyAnywhere"])
def test_a_fixed_look_back_is_right_as_often_as_the_lengths_say(name: str) -> None:
    """Of the last token: surely where the length divides 20, else by the chance that two symbols are the same."""
    copies = module("copies")
    source = type("Unshifted", (getattr(copies, name),), {"front": 0})(copies.LENGTH, 0)
    run = {"Linear": "linear", "Even": "1-37", "ManyAnywhere": "8-30"}[name]
    exact = sum(chance * (1 if 20 % one == 0 else Fraction(1, 64)) for one, chance in lengths(run).items())
    rows = source.rows(np.random.default_rng(3), 8000)
    right = float((rows[:, -1] == rows[:, -21]).mean())
    assert abs(right - float(exact)) < 3 * float(exact * (1 - exact) / 8000) ** 0.5


@pytest.mark.parametrize("name", ["Linear", "OneAnywhere", "ManyAnywhere"])
def test_rows_repeat_behind_at_most_so_much_filler(name: str) -> None:
    copies = module("copies")
    source = getattr(copies, name)(copies.LENGTH, 0)
    rows = source.rows(np.random.default_rng(1), 300)
    assert rows.shape == (300, 65) and (rows[:, 0] == 0).all() and rows[:, 1:].min() == 1 and rows.max() == 64
    assert (source.held_out(8) == source.held_out(8)).all()
    behind = rows[:, 1 + source.front :]
    for row in behind:
        assert any((row[one:] == row[:-one]).all() for one in source.chances)
    if source.front:
        assert not any((row[20:] == row[:-20]).all() for row in rows[:4, 1:])


def test_tests_copy_at_their_distance_alone() -> None:
    copies = module("copies")
    for name, (rows, begins) in copies.tests(40).items():
        again = [row[begin : begin + 10] for row, begin in zip(rows, begins, strict=True)]
        assert rows.shape == (40, 65) and (begins + 10 <= 65).all()
        assert all(len(set(row)) == (65 if name == "broken" else 55) for row in rows)
        for row, begin, stretch in zip(rows, begins, again, strict=True):
            before = row[:begin].tolist()
            distances = {begin + i - before.index(one) for i, one in enumerate(stretch) if one in before}
            assert len(distances) == (name != "broken") and distances <= {20, 41, 43, 47, 53}
    assert all(copies.BLOCK + between not in range(38) for between in copies.BETWEEN)
    trained = {one for run in RUNS for one in lengths(run)}
    assert all((copies.BLOCK + between) % one for between in copies.BETWEEN for one in trained - {1})


class By:
    """A model that says what a rule says of the tokens so far."""

    def __init__(self, rule: Callable[[list[int]], int]) -> None:
        self.rule = rule

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        said = [[self.rule(row[: i + 1]) for i in range(len(row))] for row in tokens.tolist()]
        return torch.nn.functional.one_hot(torch.tensor(said), 65).double()


def back(distance: int) -> By:
    return By(lambda seen: seen[len(seen) - distance] if len(seen) >= distance else 0)


def matching(first: int = 0, last: int = 99) -> By:
    """What followed this token before, of the places first to last."""

    def rule(seen: list[int]) -> int:
        found = [i for i in range(len(seen) - 1) if seen[i] == seen[-1] and first <= i <= last]
        return seen[found[-1] + 1] if found else 0

    return By(rule)


@pytest.mark.parametrize(
    ("model", "right"),
    [
        (matching(), (1, 1, 1, 0)),
        (back(20), (1, 1, 0, 0)),
        (back(41), (0, 0, 0.25, 0)),
        (matching(last=20), (1, 0, 1, 0)),  # of the first places alone: filler in front hides the copy
        (matching(first=22), (0, 1, 0, 0)),
    ],
)
def test_heads_by_hand_have_exact_accuracies(model: By, right: tuple[float, ...]) -> None:
    said = module("numbers").accuracies(model, 0)
    assert [float(said[f"copied_{name}"]) for name in ("near", "shifted", "new", "broken")] == list(right)


def test_errors_by_hand() -> None:
    modes = module("numbers").modes
    assert modes(back(20), (20, 40, 60)) == {"right": 0, "back": 1, "row": 0, "elsewhere": 0}
    assert modes(back(20), (20, 40, 60), "broken") == {"right": 0, "back": 1, "row": 0, "elsewhere": 0}
    assert modes(back(20), (20, 40, 60), "near") == {"right": 1, "back": 0, "row": 0, "elsewhere": 0}
    assert modes(back(19), (20, 40, 60)) == {"right": 0, "back": 0, "row": 1, "elsewhere": 0}
    assert modes(back(19), (19,)) == {"right": 0, "back": 1, "row": 0, "elsewhere": 0}
    never = modes(By(lambda seen: next(one for one in range(1, 65) if one not in seen)), (20, 40, 60))
    assert never["row"] == never["back"] == 0 and never["elsewhere"] == 1 - never["right"]


class Looks:
    """Of two heads one looks at the token before, at queries up to 15; a quarter of the other's attention is there."""

    def run_with_cache(self, tokens: torch.Tensor) -> tuple[None, dict[tuple[str, int], torch.Tensor]]:
        n, length = tokens.shape
        pattern = torch.zeros(n, 2, length, length)
        for query in range(1, length):
            pattern[:, 0, query, query - 1 if query <= 15 else query] = 1
            pattern[:, 1, query, query - 1] = 1 / 4
        return None, {("pattern", 0): pattern}


def test_attention_to_the_token_before_is_that_of_the_best_head() -> None:
    token_before = module("numbers").token_before
    assert token_before(Looks(), 1, 15) == 1 and token_before(Looks(), 15, 16) == 0.5
    assert token_before(Looks(), 16, 63) == 0.25


@pytest.mark.parametrize(
    ("values", "step"),
    [([0, 0.25, 0.75, 1], 150), ([0, 0.6, 0.4, 0.6], 250), ([0, np.nan, 1, 1], 100), ([0, 0.2, 0.3, 0.4], np.nan)],
)
def test_dates_by_hand(values: list[float], step: float) -> None:
    """Between records, of the last crossing; records that were not asked are left out."""
    trace = xr.Dataset({"copied_new": ("step", values)}, coords={"step": [0, 100, 200, 300]})
    assert module("paper").half(SimpleNamespace(trace=trace)) == pytest.approx(step, nan_ok=True)
