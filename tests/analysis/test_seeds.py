"""Runs laid together, beside coins, variances by hand, and jumps whose dates are known."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tracer
from tracer.analysis.seeds import Dates, Seeds, spread
from tracer.analysis.training_curves import Curve
from tracer.measures.change_points import PhaseChange

STEPS = np.arange(0, 1010, 10)


def curve(name: str, at: int | None, values: np.ndarray | None = None) -> Curve:
    change = None if at is None else PhaseChange(at, at, at, at, at, 0.0, 1.0)
    head = (0, 1) if name == "previous_token" else (1, 2)
    return Curve(name, STEPS, np.zeros(len(STEPS)) if values is None else values, change, (head,))


def jump(at: float, width: float = 10.0) -> np.ndarray:
    return 1 / (1 + np.exp(-(STEPS - at) / width))


@pytest.mark.parametrize("n", range(1, 13))
def test_the_interval_of_a_median_is_the_narrowest_that_coins_allow(n: int) -> None:
    """Each seed's date falls before the true median or after it, as a coin does."""
    coins = [sum(of) for of in itertools.product([0, 1], repeat=n)]  # how many dates lie before it
    held = {k: float(np.mean([k < before < n - k for before in coins])) for k in range((n + 1) // 2)}
    sure = [k for k in held if held[k] >= 0.95]
    found = Dates(tuple(range(n)), n).interval
    assert found == ((max(sure), n - 1 - max(sure)) if sure else None)
    assert (found is None) == (n < 6)


def test_runs_without_a_date_count_and_date_nothing() -> None:
    runs = {"a": [curve("induction", 300)], "b": [curve("induction", None)], "c": [curve("induction", 100)], "d": []}
    found = Seeds(runs, {}).dates("induction")
    assert (found.steps, found.runs, found.median, found.interval) == ((100, 300), 3, 200, None)
    assert np.isnan(Dates((), 2).median)


def test_the_variance_is_that_of_steps_that_all_runs_have() -> None:
    values = np.array([[1.0, 2, 4], [3, 2, 8], [5, 5, 0]])
    curves = [Curve("induction", np.array(steps), row, None) for steps, row in zip(
        ([0, 10, 20], [0, 10, 20], [0, 20, 30]), values, strict=True)]  # fmt: skip
    found = spread(curves)
    assert found.steps.tolist() == [0, 20]
    np.testing.assert_allclose(found.variance, [4, 13 / 3])  # of 1 3 5; and of 4 8 5: 26/3 about their mean, by 2
    assert found.peak is None and found.note == "the runs share 2 recorded steps only"
    assert spread(curves[:2]).note == "needs 3 runs"


def test_jumps_at_different_steps_part_most_between_them() -> None:
    curves = [curve("induction", None, jump(at)) for at in (360, 380, 400, 420, 450)]
    found = spread(curves)
    variance = np.var([jump(at) for at in (360, 380, 400, 420, 450)], axis=0) * 5 / 4
    np.testing.assert_allclose(found.variance, variance, atol=1e-28)  # less is rounding
    assert found.peak == STEPS[variance.argmax()] == 400
    assert found.earliest is not None and found.latest is not None
    assert 370 <= found.earliest <= 400 <= found.latest <= 430


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (np.cumsum(np.random.default_rng(1).normal(size=(5, 101)), axis=1) / 10, "no step stands out"),
        (np.stack([jump(800) * end for end in (0.1, 0.4, 0.5, 0.8, 1)]), "they part and stay apart"),
        (np.stack([(1 - jump(200)) * start for start in (0.1, 0.4, 0.5, 0.8, 1)]), "apart from the start"),
        (np.ones((5, 101)), "no step stands out"),
        (np.linspace(0.1, 0.7, 101)[None].repeat(3, 0), "no step stands out"),  # a variance of rounding is none
    ],
)
def test_what_is_no_peak_says_why(values: np.ndarray, note: str) -> None:
    found = spread([curve("induction", None, row) for row in values])
    assert (found.peak, found.earliest, found.latest, found.note) == (None, None, None, note)


def test_printed_it_says_all_of_it() -> None:
    dates = (360, 380, 400, 420, 450, 390)
    runs = {
        f"toy-{seed}": [curve("previous_token", at - 200, jump(at - 200)), curve("induction", at, jump(at))]
        for seed, at in enumerate(dates)
    }
    found = Seeds(runs, {"optim.lr": [1, 2]})
    assert found.changes == ["previous_token", "induction"]
    head, differ, _, previous, induction, order = str(found).splitlines()
    assert head == "6 runs: toy-0, toy-1, toy-2, toy-3, toy-4, toy-5" and "optim.lr" in differ
    assert previous.split()[:5] == ["Previous-token", "head", "6", "of", "6"]
    assert re.split("  +", induction) == [
        "Induction head", "6 of 6", "395", "360 to 450", "360 to 450",
        "410 (without one run: 390 to 420)",
    ]  # fmt: skip
    assert order == (
        "Previous-token head before Induction head: 6 of 6 (54 to 100 %), p = 0.12 of 4 orders, 0.12 at best of so "
        "many runs"
    )
    with pytest.raises(ValueError, match="no run holds a curve 'copying'; they hold induction, previous_token"):
        found.dates("copying")
    with pytest.raises(ValueError, match="'composition'; it is asked for with composition=True"):
        found.spread("composition")
    assert str(Seeds({"a": [], "b": []}, {})) == "2 runs: a, b\nNo run changed."


def test_what_no_run_could_date_may_have_a_peak_and_what_is_left_out_is_said() -> None:
    runs = {f"s{at}": [curve("induction", None, jump(at)), curve("previous_token", 100)] for at in (360, 400, 440, 450)}
    found = Seeds(runs, {}, ["s450"])
    assert found.changes == ["previous_token", "induction"]
    *_, alike, _, _, induction = str(found).splitlines()
    assert alike == "No seeds of their own: s450. No p and no interval below holds."
    assert re.split("  +", induction)[:5] == ["Induction head", "0 of 4", "-", "-", "-"] and "(without one" in induction
    beside = [[replace(curve("previous_token", 100), heads=((1, 0),)), curve("induction", 300)]] * 2
    close = [[curve("previous_token", 300), curve("induction", 300)]]
    *_, order = str(Seeds(dict(zip("abc", beside + close, strict=True)), {})).splitlines()
    assert order == (
        "Previous-token head before Induction head: not known in 1; left out: 2, whose two heads are no circuit"
    )


def test_runs_of_one_seed_are_told_and_their_weights_are_read_when_asked(short_toy: Path, tmp_path: Path) -> None:
    for name in ("toy-0", "toy-1"):
        shutil.copytree(short_toy, tmp_path / name)
    paths = [tmp_path / "toy-0", tmp_path / "toy-1"]
    plain, read = (tracer.seeds(paths, composition=asked) for asked in (False, True))
    assert plain.differ == {} and list(plain.curves) == ["toy-0", "toy-1"] and plain.alike == ["toy-1"]
    assert np.array_equal(plain.table["date"][:, 0], plain.table["date"][:, 1], equal_nan=True)
    assert (plain.spread("val_loss").variance == 0).all() and plain.spread("val_loss").note == "needs 3 runs"
    names = [[str(name) for name in found.table["curve"].values] for found in (plain, read)]
    heads = {name: head for name, head in zip(names[0], plain.table["head"][:, 0].values.tolist(), strict=True)}
    circuit = "induction" in heads and heads["previous_token"][:2] < heads["induction"][:2]
    assert ("composition" in names[1]) == circuit and "composition" not in names[0]
    for wrong, words in (
        (paths[:1], "at least two runs, not 1"), (paths[:1] * 2, "two runs are called toy-0"),
        ("toy-0", "several runs, in a list"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            tracer.seeds(wrong)
