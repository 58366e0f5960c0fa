"""One record of what two processes found, by hand: each with all heads, or with half of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tracer.watching.gathering import Gathering, part, together
from tracer.watching.probing import Probing
from tracer.watching.ranks import Ranks

NORMS = {"weight_norm": [3.0, 4.0], "update_norm": [0.3, 0.8], "grad_norm": [3.0, 4.0], "grad_norm_clipped": [1.5, 2.0]}


def stand_in(kind: type[Any], **facts: Any) -> Any:
    """One of this kind that only has these facts."""
    return object.__new__(type(kind.__name__, (kind,), facts))


def updates(loss: float, tokens: int, told: bool = True) -> dict[str, np.ndarray]:
    """Those after steps 4 and 5."""
    return {
        "step": np.array([4, 5]), "train_loss": np.array([9.0, loss]), "tokens": np.array([10, tokens]),
        "learning_rate": np.array([0.1, 0.2]), "told": np.array([True, told]),
    }  # fmt: skip


def found(
    rows: list[dict[str, Any]], largest: list[Any], split: list[int], shape: tuple[int, int], step: int = 5,
    told: bool = True,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:  # fmt: skip
    """What the first of two processes has in the end: losses 1 and 2, tokens 10 and 20."""
    model, norms = nn.Linear(1, 1), {name: np.array(x) for name, x in NORMS.items()}
    probing = stand_in(Probing, model=model, params=dict(model.named_parameters()), heads=None, shape=shape)
    every, mine = [], updates(1.0, 10, told)
    for rank, row in enumerate(rows):
        ranks = stand_in(Ranks, world=2, split=split, place=split.index(rank) if rank in split else 0)
        seen = None if largest[rank] is None else torch.tensor(largest[rank])
        every.append(part(row, updates(rank + 1.0, 10 * rank + 10), norms, seen, ranks, probing))
    together(every, rows[0], step, mine, ranks, probing)
    return rows[0], mine


def test_processes_that_each_have_all_heads() -> None:
    rows = [{"entropy": np.array([[1.0, 2.0]]), "max_logit": np.array([[5.0, 1.0]])} for _ in range(2)]
    row, told = found(rows, [None, [[3.0, 7.0]]], [0], (1, 2))
    assert told["train_loss"].tolist() == [9.0, 1.5] and told["tokens"].tolist() == [20, 30]
    assert row["entropy"].tolist() == [[1, 2]] and row["max_logit"].tolist() == [[5, 7]]
    assert (row["learning_rate"], row["train_loss"], row["clip_factor"]) == (0.2, 1.5, pytest.approx(0.5))
    np.testing.assert_allclose(row["weight_norm"], [3, 4])
    np.testing.assert_allclose(row["update_ratio"], [0.1, 0.2])


def test_processes_that_have_the_heads_between_them() -> None:
    """The second one has the first head; both read the same tokens."""
    rows = [
        {"entropy": np.array([[x]]), "max_logit": np.array([[x, x]]), "pattern": np.full((3, 1, 1, 2, 2), x),
         "val_loss": np.array(x)}
        for x in (1.0, 2.0)
    ]  # fmt: skip
    row, told = found(rows, [[[0.5]], [[8.0]]], [1, 0], (1, 1))
    assert row["entropy"].tolist() == [[2, 1]] and row["pattern"][2, 0, :, 1, 1].tolist() == [2, 1]
    assert row["pattern"].shape == (3, 1, 2, 2, 2) and row["val_loss"] == 1
    assert row["max_logit"].tolist() == [[8, 1]] and told["tokens"].tolist() == [10, 15]


@pytest.mark.parametrize(("step", "told", "known"), [(6, True, set()), (5, False, {"learning_rate"})])
def test_a_record_of_another_step_or_without_a_loss_has_none(step: int, told: bool, known: set[str]) -> None:
    row, _ = found([{}, {}], [None, None], [0], (1, 2), step, told)
    assert row.keys() & {"learning_rate", "train_loss", "max_logit"} == known


def agreed(next_of: list[int], trouble: list[bool], mine: int) -> tuple[Gathering, str]:
    """What this process knows after a record at step 5, and why it can't go on: each process says by its own clock
    when the next record is, and whether it was asked to stop (the first one was)."""
    model, norms = nn.Linear(1, 1), {name: np.array(x) for name, x in NORMS.items()}
    probing = stand_in(Probing, model=model, params=dict(model.named_parameters()), heads=None, shape=(1, 2))
    said = [{"next": np.array(x), "stop": np.array(i == 0), "trouble": np.array(bad)}
            for i, (x, bad) in enumerate(zip(next_of, trouble, strict=True))]  # fmt: skip

    def all_of(given: dict[str, Any]) -> list[dict[str, Any]]:
        assert given["next"] == next_of[mine] and given["trouble"] == trouble[mine]
        return [given | one for one in said]

    gathering = Gathering(stand_in(Ranks, world=2, split=[0], place=0, all=staticmethod(all_of)))
    gathering.trouble = "no memory" if trouble[mine] else ""
    why = gathering.of_all({}, 5, updates(1.0, 10), norms, None, probing, next_of[mine], mine == 0)
    assert not gathering.under_way
    return gathering, why


@pytest.mark.parametrize("mine", [0, 1])
def test_all_processes_record_next_when_the_first_one_says(mine: int) -> None:
    gathering, why = agreed([20, 30], [False, False], mine)
    assert (why, gathering.next, gathering.stop) == ("", 20, True)


@pytest.mark.parametrize(("mine", "why"), [(0, "another process could not measure"), (1, "no memory")])
def test_trouble_in_one_process_is_known_in_all(mine: int, why: str) -> None:
    gathering, said = agreed([20, 30], [False, True], mine)
    assert said.startswith(why) and gathering.next == -1


def test_a_process_that_failed_waits_only_for_a_record_that_the_others_know() -> None:
    gathering, _ = agreed([20, 30], [False, False], 1)
    assert gathering.may_wait("first") and gathering.may_wait("second") and gathering.trouble == "first"
    gathering.under_way = True
    assert not gathering.may_wait("in the middle of telling")
    before_any = Gathering(stand_in(Ranks, world=2))
    assert not before_any.may_wait("no memory") and before_any.trouble == ""
