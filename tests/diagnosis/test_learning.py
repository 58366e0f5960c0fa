"""Weights that never move, and the loss of counting: by hand."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from tracer.config import DataConfig
from tracer.data import build
from tracer.data.counting import unigram_loss
from tracer.diagnosis.learning import frozen, unigram
from tracer.diagnosis.objective import TARGETS

N = 20


def moves(*columns: np.ndarray | float, grad: tuple[float, ...] = (1.0, 1.0)) -> xr.Dataset:
    ratios = np.stack([np.broadcast_to(column, N) for column in columns], -1).astype(float)
    return xr.Dataset(
        {"update_ratio": (("step", "param"), ratios), "grad_norm": (("step", "param"), np.tile(grad, (N, 1)))},
        {"step": np.arange(N) * 5, "param": ["a", "b"]},
    )


ROW = np.arange(N)


@pytest.mark.parametrize(
    ("other", "since"),
    [
        pytest.param(0.0, 0, id="never"),
        pytest.param(np.where(ROW < 8, 1e-3, 0.0), 40, id="not since step 40"),
        pytest.param(1e-9, None, id="a little is no zero"),
        pytest.param(np.where(ROW < N - 1, 1e-3, 0.0), None, id="one record says nothing"),
        pytest.param(np.nan, None, id="a weight of 0 has no ratio"),
    ],
)
def test_frozen(other: np.ndarray | float, since: int | None) -> None:
    assert [one.step for one in frozen({}, moves(1e-3, other))] == ([] if since is None else [since])


def test_a_gradient_tells_withheld_from_cut_off() -> None:
    (cut,), (withheld,) = frozen({}, moves(1e-3, 0.0, grad=(1.0, 0.0))), frozen({}, moves(1e-3, 0.0))
    assert "requires_grad" in cut.advice.candidates[0] and "optimiser" in withheld.advice.candidates[0]


def test_nothing_is_frozen_where_updates_round_to_nothing() -> None:
    """A weight of 1 cannot move by 1e-9 in float32; that another can says nothing about it."""
    assert list(frozen({}, moves(1e-9, 0.0))) == [] and list(frozen({}, moves(0.0, 0.0))) == []


@pytest.mark.parametrize(
    ("loss", "since"),
    [
        pytest.param(np.full(N, 3.0), 0, id="at the level"),
        pytest.param(np.full(N, 2.98), 0, id="within a percent of it"),
        pytest.param(np.full(N, 2.9), None, id="better"),
        pytest.param(np.linspace(6, 3.1, N), None, id="it still falls"),
        pytest.param(np.r_[np.full(10, 2.0), np.full(10, 4.0)], 50, id="it was better once"),
        pytest.param(np.r_[np.linspace(6, 3, 8), np.full(12, np.nan)], None, id="too few records"),
    ],
)
def test_no_better_than_counting(loss: np.ndarray, since: int | None) -> None:
    trace = xr.Dataset({"val_loss": (("step",), loss)}, {"step": np.arange(N) * 5})
    assert [one.step for one in unigram({"references": {"unigram": 3.0}}, trace)] == ([] if since is None else [since])


def test_the_loss_of_counting_repeats_is_a_logarithm() -> None:
    """Random tokens are all as frequent: ln 15, and the excess of counting 20,000 of them, V / 2n, is 0.0004."""
    data = build(DataConfig(corpus="repeated-random", vocab_size=16, period_min=3, period_max=6), 16, seed=0)
    assert unigram_loss(data, 64) == pytest.approx(np.log(15), abs=0.02)


def test_the_loss_of_counting_is_the_cross_entropy_of_frequencies() -> None:
    """By brute force, token by token, from rows of another step."""
    data = build(DataConfig(corpus="markov", markov_states=3), 16, seed=3)
    seen = data.train(9, 4000)[:, 1:].flatten().tolist()
    share = {token: seen.count(token) / len(seen) for token in set(seen)}
    expected = np.mean([-np.log(share[token]) for token in data.val(8)[:, 1:].flatten().tolist()])
    assert unigram_loss(data, 8) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("loss", [0.0, -2.7], ids=["of nothing", "a reward"])
def test_a_loss_that_is_none_of_tokens_is_not_compared_with_counting(loss: float) -> None:
    """Of a policy gradient it may be 0, and below it; the logits are worth 2.7 nats, as counting is."""
    shifted = np.full((N, len(TARGETS)), 2.7)
    flat = {name: (("step",), np.full(N, value)) for name, value in (
        ("train_loss", loss), ("unigram_loss", 2.7), ("bigram_loss", 1.0))}  # fmt: skip
    trace = xr.Dataset({**flat, "shifted_loss": (("step", "target"), shifted)}, {"step": np.arange(N) * 5})
    assert list(unigram({}, trace)) == []
    alike = trace.assign(train_loss=trace["unigram_loss"])
    assert [one.kind for one in unigram({}, alike)] == ["unigram"]
