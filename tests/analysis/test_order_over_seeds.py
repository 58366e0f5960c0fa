"""Orders over seeds, beside tables and counting by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tracer.analysis.order_over_seeds import LINKS, Precedence, least_p, precedence, seeds_needed, share_interval
from tracer.analysis.training_curves import Curve
from tracer.measures.change_points import PhaseChange


def curve(name: str, at: int) -> Curve:
    return Curve(name, np.arange(2), np.zeros(2), PhaseChange(at, at, at, at, at, 0.0, 1.0))


def test_only_orders_that_are_known_count() -> None:
    def run(previous: int, induction: int | None) -> list[Curve]:
        return [curve("previous_token", previous)] + ([] if induction is None else [curve("induction", induction)])

    runs = [run(100, 200), run(300, 400), run(200, 100), run(100, 100), run(100, None)]
    assert precedence("previous_token", "induction", runs) == Precedence(2, 1, 1)
    assert precedence("induction", "previous_token", runs) == Precedence(1, 2, 1)


def test_heads_that_are_no_circuit_have_no_order() -> None:
    def run(layer: int) -> list[Curve]:
        return [
            replace(curve("previous_token", 100), heads=((layer, 1),)),
            replace(curve("induction", 200), heads=((1, 0),)),
        ]

    assert precedence("previous_token", "induction", [run(0), run(1)]) == Precedence(1, 0, 0, no_circuit=1)


@pytest.mark.parametrize(
    ("hits", "of", "interval"),
    [(0, 4, (0.0, 0.6024)), (2, 4, (0.0676, 0.9324)), (4, 4, (0.3976, 1.0)), (7, 10, (0.3475, 0.9333)), (0, 0, (0, 1))],
)
def test_intervals_are_those_of_the_tables(hits: int, of: int, interval: tuple[float, float]) -> None:
    assert share_interval(hits, of) == pytest.approx(interval, abs=1e-4)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.83])
def test_an_interval_holds_the_share_95_times_in_100_or_more(share: float) -> None:
    """Every outcome of 9 seeds with its own chance."""
    held = sum(
        np.prod([share if won else 1 - share for won in seeds])
        for seeds in product([False, True], repeat=9)
        if share_interval(sum(seeds), 9)[0] <= share <= share_interval(sum(seeds), 9)[1]
    )
    assert 0.95 <= held <= 1


@pytest.mark.parametrize(("before", "after"), [(2, 2), (4, 0), (0, 3), (6, 1), (1, 0)])
def test_p_is_that_of_counting_all_ways_in_which_coins_fall(before: int, after: int) -> None:
    n, most = before + after, max(before, after)
    ways = [sum(coins) for coins in product([0, 1], repeat=n)]
    counted = np.mean([heads >= most or heads <= n - most for heads in ways])
    assert Precedence(before, after, 0).p() == pytest.approx(counted)
    assert Precedence(before, after, 5).p(tried=4) == pytest.approx(min(1.0, 4 * counted))


def test_what_so_few_seeds_can_show() -> None:
    assert (least_p(3), least_p(4), least_p(6)) == (0.25, 0.125, 0.03125)
    assert Precedence(4, 0, 0).p() == least_p(4) and Precedence(0, 6, 0).p(4) == least_p(6, 4) == 0.125
    assert seeds_needed() == 6 and seeds_needed(len(LINKS)) == 8 and seeds_needed(15) == 10


def test_with_no_effect_an_order_of_the_four_is_called_at_most_5_times_in_100() -> None:
    """Seeds whose dates are shuffled: whatever their number, and though the four orders share their dates."""
    rng, names = np.random.default_rng(0), ("previous_token", "composition", "induction", "repeat_loss")
    for seeds in (3, 8, 12):
        called = 0
        for _ in range(200):
            runs = [
                [curve(name, 100 * int(at)) for name, at in zip(names, rng.permutation(4), strict=True)]
                for _ in range(seeds)
            ]
            called += any(precedence(*link, runs).p(len(LINKS)) <= 0.05 for link in LINKS)
        assert called <= 10
