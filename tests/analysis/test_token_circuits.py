"""Circuits over the vocabulary: streamed results equal the dense product's, and hand-made heads do what they must."""

from __future__ import annotations

import pytest
import torch

from tracer.analysis import token_circuits
from tracer.analysis.token_circuits import copied, diagonal_rank, largest, ov, qk


@pytest.mark.parametrize("block", [1, 40, 2**22])
@pytest.mark.parametrize("k", [1, 7, 10_000])
def test_streamed_is_dense(block: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_circuits, "BLOCK", block)
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randn(23, 4, generator=generator), torch.randn(4, 31, generator=generator)
    dense = left @ right
    found = largest(left, right, k)
    values, at = dense.flatten().topk(min(k, dense.numel()))
    torch.testing.assert_close(found.values, values)
    assert found.rows.tolist() == (at // 31).tolist() and found.cols.tolist() == (at % 31).tolist()


@pytest.mark.parametrize("block", [1, 40, 2**22])
def test_entries_off_the_diagonal_alone(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_circuits, "BLOCK", block)
    left = torch.randn(17, 17, generator=torch.Generator().manual_seed(3)) + 9 * torch.eye(17)
    found = largest(left, torch.eye(17), 10_000, apart=True)
    entries = sorted(((float(left[i, j]), i, j) for i in range(17) for j in range(17) if i != j), reverse=True)
    assert list(zip(found.values.tolist(), found.rows.tolist(), found.cols.tolist(), strict=True)) == entries


@pytest.mark.parametrize("block", [1, 50, 2**22])
def test_own_rank_is_dense(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_circuits, "BLOCK", block)
    generator = torch.Generator().manual_seed(2)
    left, right = torch.randn(19, 4, generator=generator), torch.randn(4, 19, generator=generator)
    dense = left @ right
    assert diagonal_rank(left, right).tolist() == (dense > dense.diagonal()[:, None]).sum(1).tolist()


def test_a_head_that_copies_raises_every_token_itself() -> None:
    """Orthonormal embeddings, OV the identity: each token's own logit is the largest; negated, the smallest."""
    W_E = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(0)))[0]
    left, right = ov(W_E, torch.eye(12), torch.eye(12), W_E.T)
    assert diagonal_rank(left, right).tolist() == [0] * 12
    assert diagonal_rank(left, -right).tolist() == [11] * 12
    torch.testing.assert_close(left @ right, torch.eye(12))
    assert copied(left * torch.nan, right, 5)[0] == 0


def test_a_previous_token_head_by_positions() -> None:
    """Keys are rotated by one position: position q scores q - 1 highest."""
    W_pos = torch.eye(8)
    left, right = qk(W_pos, torch.eye(8), torch.eye(8).roll(1, 1))  # k of position i is q of position i + 1
    assert (left @ right)[1:].argmax(-1).tolist() == list(range(7))


def test_tokens_that_raise_themselves() -> None:
    table = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 4.0], [0.0, 5.0, 7.0]])  # the second raises the third more
    share, best = copied(table, torch.eye(3), 5)
    assert share == pytest.approx(2 / 3)
    assert best.rows.tolist() == best.cols.tolist() == [2, 0] and best.values.tolist() == [7, 3]
