"""Spectra and positions by weights alone, against dense algebra and by hand."""

from __future__ import annotations

import pytest
import torch

from tracer.measures.composition import copying, eigenvalues, position_pattern


def test_eigenvalues_are_those_of_the_whole_circuit() -> None:
    generator = torch.Generator().manual_seed(0)
    W_V, W_O = torch.randn(2, 3, 10, 4, generator=generator), torch.randn(2, 3, 4, 10, generator=generator)
    W_E, W_U = torch.randn(17, 10, generator=generator), torch.randn(10, 17, generator=generator)
    W_V, W_O, W_E, W_U = W_V.double(), W_O.double(), W_E.double(), W_U.double()
    found = eigenvalues(W_V, W_O, W_E, W_U)
    assert found.shape == (2, 3, 4)
    for layer in range(2):
        for head in range(3):
            dense = torch.linalg.eigvals(W_E @ W_V[layer, head] @ W_O[layer, head] @ W_U)
            whole = dense[dense.abs().argsort(descending=True)][:4]  # the other 13 are 0
            gaps = (found[layer, head][:, None] - whole).abs()  # a set: any order
            assert float(gaps.min(0).values.max()) < 1e-9 and float(gaps.min(1).values.max()) < 1e-9
    torch.testing.assert_close(copying(W_V, W_O, W_E, W_U), found.real.sum(-1) / found.abs().sum(-1))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_head_that_is_not_finite_has_no_eigenvalues(bad: float) -> None:
    one = torch.eye(16)
    W_V = one.repeat(1, 2, 1, 1)
    W_V[0, 1, 0, 0] = bad
    found = eigenvalues(W_V, one.repeat(1, 2, 1, 1), one, one)
    assert found[0, 0].tolist() == [1] * 16 and found[0, 1].real.isnan().all()


def test_a_quarter_turn_has_imaginary_eigenvalues() -> None:
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    found = eigenvalues(torch.eye(2)[None, None], turn[None, None], torch.eye(2), torch.eye(2))[0, 0]
    assert sorted(found.imag.tolist()) == pytest.approx([-1, 1]) and found.real.tolist() == pytest.approx([0, 0])


def test_a_head_that_looks_one_position_back() -> None:
    """Keys are queries of the position after: position q scores q - 1 at 100, all others at 0."""
    found = position_pattern(torch.eye(6), 100 * torch.eye(6), torch.eye(6).roll(1, 1), 1.0)
    assert found[0].tolist() == [1, 0, 0, 0, 0, 0]
    assert found.diagonal(-1).tolist() == pytest.approx([1.0] * 5)


def test_positions_without_a_preference_are_even() -> None:
    found = position_pattern(torch.randn(5, 3), torch.zeros(3, 2), torch.randn(3, 2), 7.0)
    torch.testing.assert_close(found, torch.ones(5, 5).tril() / torch.arange(1, 6)[:, None])


def test_scores_are_scaled() -> None:
    found = position_pattern(torch.tensor([[0.0], [1.0]]), torch.ones(1, 1), torch.ones(1, 1), 0.5)
    torch.testing.assert_close(found[1], torch.tensor([0.0, 0.5]).softmax(0))
