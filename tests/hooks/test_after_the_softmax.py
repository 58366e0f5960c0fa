"""What is done to weights between their softmax and the values counts: the pattern is what multiplies the values."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import tracer
from tests.hooks.by_hand import BATCH, ByHand, T
from tracer.hooks.refusals import CannotWatch

HIDDEN = torch.zeros(BATCH, 1, 1, T, dtype=torch.bool)
HIDDEN[2, ..., 0] = True  # of the last sequence alone: one that looks at the first sees nothing of it


def filled(weights: Tensor) -> Tensor:
    return weights.masked_fill_(HIDDEN, 0)


def multiplied(weights: Tensor) -> Tensor:
    weights *= ~HIDDEN
    return weights


def assigned(weights: Tensor) -> Tensor:
    weights[2, ..., 0] = 0
    return weights


def through_a_view(weights: Tensor) -> Tensor:
    weights[2].narrow(-1, 0, 1).fill_(0)
    return weights


def out_of_place(weights: Tensor) -> Tensor:
    return weights.masked_fill(HIDDEN, 0)


CHANGES = [filled, multiplied, assigned, through_a_view, out_of_place]


def attention(change: Callable[[Tensor], Tensor], cast: bool, again: bool) -> Callable[..., Tensor]:
    """cast: the weights that are changed are a copy of the softmax; again: they are made to sum to 1 afterwards."""

    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        weights = (q @ k.mT / 2).softmax(-1, dtype=torch.float64 if cast else None).to(v.dtype)
        weights = change(weights)
        if again:
            weights /= weights.sum(-1, keepdim=True)
        return (weights @ v).transpose(1, 2)

    return how


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
def test_the_pattern_is_what_multiplies_the_values(change: Any, cast: bool, quiet: Any) -> None:
    model, x = ByHand(attention(change, cast, again=True)).eval(), torch.randn(BATCH, T, 16)
    with quiet(), tracer.watch(model, keep=BATCH) as watcher:
        model(x)
    q, k, _ = (t.detach().double().transpose(1, 2) for t in model.parts(x))
    pattern = (q @ k.mT / 2).masked_fill(HIDDEN, -math.inf).softmax(-1)
    entropy = torch.special.entr(pattern).sum(-1)[:, :, 1:]
    found, keys = watcher.read(), (~HIDDEN).sum(-1)
    assert (torch.from_numpy(found["entropy"].values[0]) - entropy.mean((0, 2))).abs().max() < 1e-6
    share = (entropy / keys.log()).mean((0, 2))
    assert (torch.from_numpy(found["entropy_normalised"].values[0]) - share).abs().max() < 1e-6
    assert (watcher.pattern(0, 1, sequence=2) - pattern[2, 1]).abs().max() < 1e-6


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("cast", [False, True])
def test_what_no_longer_sums_to_one_is_refused_in_any_sequence_and_pass(change: Any, cast: bool) -> None:
    harmless = ByHand(attention(lambda weights: weights, cast, again=False)).eval()
    how, x = attention(change, cast, again=False), torch.randn(BATCH, T, 16)
    with torch.no_grad(), tracer.watch(harmless) as watcher:
        harmless(x)
        watcher.read()
        harmless.how = how
        harmless(x)
    with pytest.raises(CannotWatch, match="masked or scaled after the softmax"):
        watcher.read()


def test_a_largest_score_that_was_subtracted_is_not_known() -> None:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k)
        return torch.einsum("bhqk,bkhd->bqhd", (scores - scores.amax(-1, keepdim=True)).softmax(-1), v)

    with torch.no_grad(), tracer.watch(model := ByHand(how)) as watcher:
        model(torch.randn(BATCH, T, 16))
    assert bool(watcher.read()["max_logit"].isnull().all())
