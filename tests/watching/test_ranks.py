"""What the processes of one training agree upon, of processes that a test stands in for: they share a store."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist
from torch import nn

from tracer.hooks.refusals import CannotWatch
from tracer.watching import ranks
from tracer.watching.ranks import Ranks, side_by_side


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dist.HashStore:
    """Nobody is waited for, whose word is not in it by now."""
    found = dist.HashStore()
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: found)
    monkeypatch.setattr(ranks, "SOON", timedelta(milliseconds=1))
    monkeypatch.setattr(ranks, "PATIENCE", timedelta(milliseconds=3))
    return found


def process(rank: int, world: int) -> Ranks:
    found = Ranks(nn.Linear(2, 2), Path("r"))
    found.rank, found.world, found.split, found._name = rank, world, [rank], "here"
    return found


def test_who_comes_late_hears_what_was_found_without_it(store: dist.HashStore) -> None:
    assert process(0, 1).absent("join") == []
    store.set("here/join/2", "here")
    assert process(0, 3).absent("join") == [1]
    assert process(1, 3).absent("join") == [1]
    assert process(1, 3).absent("other") == [0, 2]


def test_where_all_have_come_nobody_is_absent(store: dist.HashStore) -> None:
    for rank in range(2):
        store.set(f"here/watches/{rank}", "told before")
    assert [process(rank, 2).absent("watches") for rank in range(2)] == [[], []]
    assert store.get("here/watches/0") == b"told before"


def test_of_tracer_watch_alone_it_is_said_who_is_waited_for(store: dist.HashStore) -> None:
    said = r"waits 0.003 s at most for ranks 1, 2, where tracer.watch has not been called yet"
    with pytest.warns(RuntimeWarning, match=said) as warned:
        assert process(0, 3).absent("watches") == [1, 2]
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("told", "absent", "over"),
    [
        ({0: "theirs"}, True, True), ({0: "theirs"}, False, False), ({0: "mine"}, True, False),
        ({0: "theirs", 1: "mine"}, True, False), ({0: "theirs", 1: "theirs"}, True, True), ({}, True, True),
    ],
)  # fmt: skip
def test_a_name_is_over_where_others_recorded_something_else_under_it(
    store: dist.HashStore, told: dict[int, str], absent: bool, over: bool
) -> None:
    for rank, what in told.items():
        store.set(f"here/watches/{rank}", what)
    if absent:
        store.set("here/watches/absent", "[]")
    assert process(0, 2)._is_over("mine") is over


@pytest.mark.parametrize(
    ("runs", "modules", "alone"),
    [(("a", "b"), ("x", "y"), True), (("a", "a"), ("x", "x"), False), (("a", "b"), ("x", "x"), False)],
)
def test_processes_with_modules_of_their_own_record_alone(
    store: dist.HashStore, runs: tuple[str, str], modules: tuple[str, str], alone: bool
) -> None:
    for rank in range(2):
        store.set(f"here/watches/{rank}", json.dumps([runs[rank], [modules[rank]]]))
    one = process(1, 2)
    assert one._stages([]) is alone and not process(0, 1)._stages([])
    assert (one.rank, one.world, one.split) == ((0, 1, [0]) if alone else (1, 2, [1]))


def test_modules_of_their_own_in_one_run_are_refused(store: dist.HashStore) -> None:
    for rank in range(2):
        store.set(f"here/watches/{rank}", json.dumps(["a", [str(rank)]]))
    with pytest.raises(CannotWatch, match="give each a run of its own"):
        process(0, 2)._stages([])
    assert process(0, 3)._stages([1, 2]) is False


def test_the_first_that_came_records_alone_without_the_others(store: dist.HashStore) -> None:
    for rank in (1, 2):
        store.set(f"here/watches/{rank}", json.dumps(["a", ["x"]]))
    first, second = process(1, 3), process(2, 3)
    with pytest.warns(RuntimeWarning, match="at most for rank 0"):
        assert first.meet(nn.Linear(2, 2)) is None
    with pytest.warns(RuntimeWarning, match="at most for rank 0"):
        why = second.meet(nn.Linear(2, 2))
    assert why == "rank 0 did not call tracer.watch before the first pass, so rank 1 records alone"
    assert (first.rank, first.world, second.rank, second.world) == (0, 1, 2, 3)


@pytest.mark.parametrize(("rank", "split", "place"), [(0, [0], 0), (3, [1, 3], 1), (1, [1, 3], 0), (2, [1, 3], 0)])
def test_the_place_among_those_that_share_heads(rank: int, split: list[int], place: int) -> None:
    one = process(rank, 4)
    one.split = split
    assert one.place == place


def test_largest_logits_are_put_side_by_side() -> None:
    """Of two heads in each of two places, one of which two processes have."""
    every = [
        {"place": np.array(0), "largest": np.array([[1.0, np.nan]])},
        {"place": np.array(1), "largest": np.array([[5.0, 6.0]])},
        {"place": np.array(0), "largest": np.array([[0.0, 3.0]])},
    ]
    np.testing.assert_array_equal(side_by_side(every), [[1, 3, 5, 6]])


def test_one_process_shares_with_itself() -> None:
    one = process(0, 1)
    assert one.first("mine") == "mine"
    assert one.all({"a": np.array([1, 2], np.int32)})[0]["a"].dtype == np.float64
