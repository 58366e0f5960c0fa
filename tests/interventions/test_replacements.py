"""What stands in for a head, row by row, in numbers known by hand."""

from __future__ import annotations

import pytest
import torch

from tracer.interventions.replacements import another, derangement, mean_of_others, own_rows, plan, replacement

TAP = "blocks.0.attn.hook_z"
NONE = -1


@pytest.mark.parametrize(
    "own",
    [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 2, 2], [1, NONE, 0, NONE, 3], [NONE] * 5],
    ids=["the reference", "in another order", "one row thrice", "some in it", "none in it"],
)
def test_another_is_never_the_row_itself(own: list[int]) -> None:
    drawn = torch.stack([another(5, torch.tensor(own), draw) for draw in range(50)])
    assert (drawn != torch.tensor(own)).all() and ((drawn >= 0) & (drawn < 5)).all()
    assert all(len(set(row.tolist())) >= 3 for row in drawn.T)


def test_a_derangement_is_a_permutation_in_which_nothing_stays() -> None:
    orders = torch.stack([derangement(6, seed) for seed in range(40)])
    assert (orders.sort(1).values == torch.arange(6)).all() and (orders != torch.arange(6)).all()
    assert len(orders.unique(dim=0)) > 30


def test_the_mean_leaves_the_row_itself_out() -> None:
    """Rows 0, 3 and 9 of a reference; of an input that is no row of it, the mean is that of all three."""
    reference = torch.tensor([[0.0], [3.0], [9.0]])
    for own, wanted in ([0, 1, 2], [6.0, 4.5, 1.5]), ([2, NONE], [1.5, 4.0]):
        where = torch.tensor(own)
        found = mean_of_others(reference.sum(0), 3, reference[where], where)
        assert found.flatten().tolist() == wanted
        assert replacement(TAP, "mean", {TAP: reference}, where).flatten().tolist() == wanted  # pyrefly: ignore[missing-attribute]
    assert replacement(TAP, "paired", {TAP: reference}, torch.tensor([2, 0, 1])) is reference


def test_own_rows_are_found_wherever_they_stand() -> None:
    reference = torch.tensor([[0, 5], [0, 6], [0, 7]])
    assert own_rows(torch.tensor([[0, 7], [0, 8], [0, 5]]), reference).tolist() == [2, NONE, 0]


def test_heads_of_a_layer_are_one_edit() -> None:
    edits = plan([(1, 0), (0, 2), (1, 3)], "zero", positions=(4,))
    assert [(one.tap, one.heads, one.positions, one.instead) for one in edits] == [
        ("blocks.1.attn.hook_z", (0, 3), (4,), 0.0), ("blocks.0.attn.hook_z", (2,), (4,), 0.0),
    ]  # fmt: skip
