"""Each test of an induction head by itself, on heads that nearly pass it, with numbers known by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tracer.ablate import induction_tests
from tracer.ablate.effects import Effect
from tracer.ablate.estimates import Estimate, estimate, within
from tracer.ablate.induction_tests import ablation, copying_by_behaviour, copying_by_weights, prefix_matching
from tracer.ablate.repeats import Repeats
from tracer.config import ModelConfig
from tracer.model import Transformer

VOCAB = 10
ROWS = Repeats(
    torch.stack([torch.cat([torch.zeros(1).long(), 1 + torch.arange(9).roll(i).repeat(2)]) for i in range(9)])
)
"""A start token and nine tokens, twice: the other rows have the other eight at each place."""


def copier(higher: int = 0, rests: bool = False) -> Transformer:
    """One head that looks at its own token t, there and before, and adds 1 to its logit, 2 to t + 1 ... t + higher.

    `rests`: most of its attention is on the start token, whose value is 0.
    """
    config = ModelConfig(
        n_layers=1, n_heads=1, d_model=2 * VOCAB, d_head=VOCAB, n_ctx=19, d_vocab=VOCAB, norm="none", positions="none"
    )
    model = Transformer(config).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    attn, words = model.blocks[0].attn, torch.eye(VOCAB).double()
    assert attn.W_O is not None
    model.embed.W_E[:, :VOCAB], model.W_U[VOCAB:] = words, words
    attn.W_Q[0, :VOCAB], attn.W_K[0, :VOCAB] = 200 * words, words
    attn.W_K[0, 0] = 1.01 if rests else 0
    attn.W_V[0, 1:VOCAB, 1:] = words[1:, 1:]
    attn.W_O[0, 1:, VOCAB + 1 :] = torch.eye(9) + 2 * sum(torch.eye(9).roll(1 + i, 1) for i in range(higher))
    return model


@pytest.mark.parametrize(
    ("mean", "control", "passed"),
    [
        (0.6, math.nan, True),
        (0.6, 0.5, True),
        (0.6, 0.58, False),
        (0.6, 0.6, False),
        (0.41, 0.0, True),
        (0.39, 0.0, False),
    ],
)
def test_prefix_matching_is_high_and_beyond_doubt_above_its_control(mean: float, control: float, passed: bool) -> None:
    found = prefix_matching(ROWS, mean + np.linspace(-0.1, 0.1, 8), control)
    assert found.value == pytest.approx(mean) and mean - 0.1 < found.low < mean - 0.02 and found.passed is passed


def test_the_interval_of_a_score_stays_where_the_score_can_be() -> None:
    """Values near an end, whose mean give or take its error goes beyond it."""
    high, low = (
        prefix_matching(ROWS, values, 0.0) for values in (np.array([1.0, 1, 1, 0.7]), np.array([0, 0, 0, 0.3]))
    )
    assert high.high == 1.0 and 0.5 < high.low < high.value and low.low == 0.0 and low.value < low.high < 0.5


def test_an_interval_is_cut_where_its_number_ends() -> None:
    assert within(Estimate(0.97, 0.9, 1.04, 8), -math.inf) == Estimate(0.97, 0.9, 1.0, 8)
    assert within(Estimate(0.02, -0.1, 0.1, 8)) == Estimate(0.02, 0.0, 0.1, 8)
    one = within(Estimate(0.5, math.nan, math.nan, 1))
    assert math.isnan(one.low) and math.isnan(one.high)  # one sequence has none


@pytest.mark.parametrize(
    ("spaces", "said"),
    [
        ((9, 9), "and all tokens come again after 9: always looking 8 back would score as high."),
        ((9, 8), "repeat here."),
    ],
)
def test_a_control_that_is_missing_is_said(spaces: tuple[int, int], said: str) -> None:
    rows = [torch.tensor([0, *range(1, space + 1), *range(1, 19 - space)]) for space in spaces]
    found = prefix_matching(Repeats(torch.stack(rows)), np.linspace(0.5, 0.7, 8), math.nan)
    assert "There is no control without a repeat here" in found.sentence and found.sentence.endswith(said)
    assert "nothing repeats" not in found.sentence and found.passed is True
    assert "no control" not in prefix_matching(ROWS, np.linspace(0.5, 0.7, 8), 0.1).sentence


@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize(("higher", "passed"), [(0, True), (2, True), (3, False)])
def test_copying_by_hand(higher: int, passed: bool, rests: bool) -> None:
    """A token is compared with the start token and with two copies of eight others, some of which rise by more."""
    found = copying_by_behaviour(copier(higher, rests), ROWS, (0, 0))
    assert found.value == pytest.approx((17 - 2 * higher) / 17) and found.low > 0.5 and found.passed is passed


def head_of_rank(d_head: int, negative: int = 0) -> Transformer:
    """One head of d_head tokens, each of which raises its own logit, but for some that lower it."""
    config = ModelConfig(n_layers=1, n_heads=1, d_model=40, d_head=d_head, n_ctx=4, d_vocab=40, norm="none")
    model = Transformer(config).requires_grad_(False)
    attn, words = model.blocks[0].attn, torch.eye(40)
    assert attn.W_O is not None
    signs = torch.ones(d_head)
    signs[:negative] = -1
    model.embed.W_E[:], model.W_U[:], attn.W_V[0], attn.W_O[0] = words, words, words[:, :d_head], words[:d_head]
    attn.W_O[0] *= signs[:, None]
    return model


@pytest.mark.parametrize(
    ("d_head", "negative", "value", "passed"),
    [
        (40, 0, 1.0, True),
        (40, 8, 0.6, True),
        (40, 14, 0.3, False),  # far above random heads, but a third of its tokens are lowered
        (1, 0, 1.0, False),  # of one eigenvalue: every other random head does the same
    ],
)
def test_copying_by_weights_by_hand(d_head: int, negative: int, value: float, passed: bool) -> None:
    found = copying_by_weights(head_of_rank(d_head, negative), (0, 0))
    assert found.value == pytest.approx(value, abs=1e-5) and abs(found.chance) < 0.2 and found.passed is passed


@pytest.mark.parametrize("silent", ["W_V", "W_O"])
def test_a_head_that_writes_nothing_has_no_copying_score(silent: str) -> None:
    model = copier()
    getattr(model.blocks[0].attn, silent).zero_()
    for found in (copying_by_behaviour(model, ROWS, (0, 0)), copying_by_weights(model, (0, 0))):
        assert found.passed is None and math.isnan(found.value) and found.sentence.startswith("Not measured: ")
        assert str(found).startswith("  -   copying") and "nan" not in str(found) and "%" not in str(found)


def test_a_chance_is_at_most_100_percent() -> None:
    """Four tokens, of which the five that rise most are all."""
    model = Transformer(ModelConfig(n_layers=1, n_heads=1, d_model=4, n_ctx=4, d_vocab=4, norm="none"), seed=1)
    said = copying_by_weights(model.requires_grad_(False), (0, 0)).sentence
    assert "100% of the tokens are among the 4 that" in said and "(at chance 100.0%)" in said


def lost(again: float, new: float = 0.0, gain: float = 4.0, spread: float = 0.01) -> Effect:
    """A model that gains so much from repetition, give or take `spread`, and a head that costs so much."""
    clean = torch.where(ROWS.again, 0.0, gain + spread * torch.linspace(-1, 1, len(ROWS.tokens))[:, None]).double()
    return Effect(clean, clean + torch.where(ROWS.again, again, new))


def test_a_share_is_that_of_the_middle_replacement_and_each_must_reach_it() -> None:
    found, _ = ablation(ROWS, {"zero": lost(2.0), "mean": lost(0.2), "resample": lost(1.0)})
    assert found.value == pytest.approx(0.25) and found.passed is False
    found, _ = ablation(ROWS, {"zero": lost(2.0), "mean": lost(0.6), "resample": lost(1.0)})
    assert found.value == pytest.approx(0.25) and found.passed is True


@pytest.mark.parametrize(("gain", "spread", "passed"), [(4.0, 1.0, True), (0.2, 1.0, False), (0.09, 0.0, False)])
def test_no_head_is_needed_for_a_gain_that_may_be_none(gain: float, spread: float, passed: bool) -> None:
    found, _ = ablation(ROWS, dict.fromkeys(("zero", "mean", "resample"), lost(1.0, gain=gain, spread=spread)))
    assert found.passed is passed and math.isnan(found.value) is not passed


@pytest.mark.parametrize(
    ("rows", "said"),
    [(ROWS.tokens[:1], "one sequence has no interval"), (torch.tensor([[0, 1, 1, 1], [0, 2, 2, 2]]), "two new tokens")],
)
def test_a_gain_that_is_no_number_is_not_measured(rows: torch.Tensor, said: str) -> None:
    loss = torch.ones(len(rows), rows.shape[1] - 1).double()
    found, _ = ablation(Repeats(rows), dict.fromkeys(("zero", "mean", "resample"), Effect(loss, 2 * loss)))
    assert found.passed is None and said in found.sentence and "nan" not in str(found)


def test_an_interval_is_told_where_there_is_one() -> None:
    of_three, of_one = estimate(np.array([1.0, 2.0, 3.0])), estimate(np.array([2.0]))
    assert induction_tests._with_ends(of_one) == "2.00"
    low, high = (f"{end:.2f}" for end in (of_three.low, of_three.high))
    assert induction_tests._with_ends(of_three).replace("−", "-") == f"2.00 [{low}, {high}]"
