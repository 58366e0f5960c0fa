"""Composition and copying against dense algebra, and against heads whose answer is known."""

from __future__ import annotations

import statistics
from typing import Literal

import pytest
import torch
from torch import Tensor

from tracer.measures.composition import composition, copying, random_composition, random_copying, stands_out

D_MODEL, D_HEAD = 12, 4


def weights(seed: int, n_layers: int = 3, n_heads: int = 2) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    into, out = (n_layers, n_heads, D_MODEL, D_HEAD), (n_layers, n_heads, D_HEAD, D_MODEL)
    W_Q, W_K, W_V, W_O = (torch.randn(shape, generator=generator).double() for shape in (into, into, into, out))
    return W_Q, W_K, W_V, W_O


@pytest.mark.parametrize("at_once", [1, 2**26])
@pytest.mark.parametrize("into", ["q", "k", "v"])
def test_composition_is_dense_algebra(
    into: Literal["q", "k", "v"], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracer.measures.composition.AT_ONCE", at_once)
    W_Q, W_K, W_V, W_O = weights(0)
    told: list[tuple[int, int]] = []
    found = composition(into, W_Q, W_K, W_V, W_O, lambda done, of: told.append((done, of)))
    assert found.shape == (3, 2, 3, 2)
    assert told == ([(2, 12), (4, 12), (8, 12), (12, 12)] if at_once == 1 else [(4, 12), (12, 12)])
    for layer1 in range(3):
        for layer2 in range(3):
            for head1 in range(2):
                for head2 in range(2):
                    value = found[layer1, head1, layer2, head2]
                    if layer1 >= layer2:
                        assert value.isnan()
                        continue
                    ov = W_V[layer1, head1] @ W_O[layer1, head1]
                    qk = W_Q[layer2, head2] @ W_K[layer2, head2].T
                    read = {"q": qk, "k": qk.T, "v": W_V[layer2, head2] @ W_O[layer2, head2]}[into]
                    assert value == pytest.approx(float((ov @ read).norm() / ov.norm() / read.norm()), abs=1e-12)


def test_a_head_built_to_read_another_stands_out() -> None:
    W_Q, W_K, W_V, W_O = weights(1)
    W_K[2, 1] = W_O[0, 1].T  # its keys read the very directions that L0H1 writes
    k = composition("k", W_Q, W_K, W_V, W_O)[:2, :, 2, 1]
    assert int(k.argmax()) == 1 and k[0, 1] > 1.5 * k.flatten().sort().values[-2]


def test_a_head_that_writes_nothing_is_read_by_none() -> None:
    W_Q, W_K, W_V, W_O = weights(2)
    W_O[0, 0] = 0
    assert (composition("v", W_Q, W_K, W_V, W_O)[0, 0, 1:] == 0).all()


def test_nothing_is_known_of_a_head_that_is_not_finite() -> None:
    W_Q, W_K, W_V, W_O = weights(2)
    W_O[0, 0] = torch.nan
    found = composition("v", W_Q, W_K, W_V, W_O)
    assert found[0, 0, 1:].isnan().all() and found[0, 1, 1:].isfinite().all()


@pytest.mark.parametrize(("d_model", "d_head", "expected"), [(64, 16, 0.123), (128, 32, 0.088)])
def test_random_heads_compose_by_one_over_root_d_model(d_model: int, d_head: int, expected: float) -> None:
    mean, sd = random_composition(d_model, d_head)
    assert mean == pytest.approx(expected, abs=0.003) and mean == pytest.approx(d_model**-0.5, rel=0.05)
    assert 0 < sd < mean / 10


def test_random_composition_is_the_mean_of_all_pairs_of_two_layers() -> None:
    """As many heads a layer as make n pairs, two at least: of one pair there is no standard deviation."""
    generator = torch.Generator().manual_seed(3)
    into, out = (2, 3, D_MODEL, D_HEAD), (2, 3, D_HEAD, D_MODEL)
    W_Q, W_K, W_V, W_O = (torch.randn(shape, generator=generator) for shape in (into, into, into, out))
    ov = [W_V[0, head] @ W_O[0, head] for head in range(3)]
    kq = [W_K[1, head] @ W_Q[1, head].T for head in range(3)]
    found = [float((a @ b).norm() / a.norm() / b.norm()) for a in ov for b in kq]
    mean, sd = statistics.mean(found), statistics.stdev(found)
    assert random_composition(D_MODEL, D_HEAD, n=9, seed=3) == pytest.approx((mean, sd), rel=1e-4)
    assert random_composition(D_MODEL, D_HEAD, n=1, seed=3)[1] > 0


Weights = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""W_Q, W_K, W_V and W_O of all heads."""


def untrained(shape: tuple[int, int, int, int], seed: int) -> Weights:
    """Weights [layer head d_model d_head] and back, of a model before training."""
    generator, (n_layers, n_heads, d_model, d_head) = torch.Generator().manual_seed(seed), shape
    sizes = ((d_model, d_head),) * 3 + ((d_head, d_model),)
    W_Q, W_K, W_V, W_O = (0.02 * torch.randn(n_layers, n_heads, *size, generator=generator) for size in sizes)
    return W_Q, W_K, W_V, W_O


def ribbons(weights: Weights) -> int:
    """Pairs that stand out, of all that Circuits compares."""
    n_layers, n_heads, d_model, d_head = weights[0].shape
    pairs = 3 * n_heads**2 * n_layers * (n_layers - 1) // 2
    edge = stands_out(d_model, d_head, pairs)
    return sum(int((composition(into, *weights) > edge).sum()) for into in ("q", "k", "v"))


def test_of_random_heads_no_pair_stands_out() -> None:
    shape, models = (4, 4, 32, 8), 60
    found = [ribbons(untrained(shape, seed)) > 0 for seed in range(models)]
    assert sum(found) <= 7  # of 60, 5 % each: more in 1 of 150 such tests


def test_a_head_that_reads_another_stands_out() -> None:
    weights = untrained((4, 4, 32, 8), 3)
    assert ribbons(weights) == 0
    weights[1][2, 1] += weights[3][0, 3].T  # W_K of L2H1 reads what L0H3 writes
    edge = stands_out(32, 8, 3 * 96)
    assert [tuple(at) for at in (composition("k", *weights) > edge).nonzero().tolist()] == [(0, 3, 2, 1)]


def test_copying_is_dense_algebra() -> None:
    _, _, W_V, W_O = weights(3)
    generator = torch.Generator().manual_seed(4)
    W_E, W_U = (torch.randn(shape, generator=generator).double() for shape in ((20, D_MODEL), (D_MODEL, 20)))
    found = copying(W_V, W_O, W_E, W_U)
    for layer in range(3):
        for head in range(2):
            dense = torch.linalg.eigvals(W_E @ W_V[layer, head] @ W_O[layer, head] @ W_U)
            assert found[layer, head] == pytest.approx(float(dense.real.sum() / dense.abs().sum()), abs=1e-9)


def test_copying_of_heads_known_by_hand() -> None:
    """Orthonormal W_E, W_U its transpose: the identity copies, its negative suppresses, a rotation does neither."""
    W_E = torch.eye(4).double()
    turn = torch.tensor([[0, 1.0, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0]]).double()
    W_V = W_E.expand(1, 4, 4, 4)
    W_O = torch.stack([W_E, -W_E, turn, torch.zeros_like(W_E)])[None]
    found = copying(W_V, W_O, W_E, W_E.T)[0]
    assert found[:3].tolist() == pytest.approx([1.0, -1.0, 0.0], abs=1e-12) and found[3].isnan()


def test_random_copying_is_the_mean_of_heads_without_a_purpose() -> None:
    generator = torch.Generator().manual_seed(5)
    W_E, W_U = torch.randn(20, D_MODEL, generator=generator), torch.randn(D_MODEL, 20, generator=generator)
    again = torch.Generator().manual_seed(6)
    W_V, W_O = torch.randn(7, D_MODEL, D_HEAD, generator=again), torch.randn(7, D_HEAD, D_MODEL, generator=again)
    spectra = [torch.linalg.eigvals(W_E @ a @ b @ W_U) for a, b in zip(W_V, W_O, strict=True)]
    found = [float(one.real.sum() / one.abs().sum()) for one in spectra]
    mean, sd = statistics.mean(found), statistics.stdev(found)
    assert random_copying(W_E, W_U, D_HEAD, n=7, seed=6) == pytest.approx((mean, sd), rel=1e-3)


@pytest.mark.parametrize(("d_head", "expected"), [(16, 0.10), (32, 0.05)])
def test_random_heads_copy_nothing(d_head: int, expected: float) -> None:
    generator = torch.Generator().manual_seed(5)
    W_E, W_U = torch.randn(300, 64, generator=generator), torch.randn(64, 300, generator=generator)
    mean, sd = random_copying(W_E, W_U, d_head)
    assert abs(mean) < 0.03 and sd == pytest.approx(expected, rel=0.25)
