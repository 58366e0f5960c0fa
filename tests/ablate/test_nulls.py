"""Random sets, p-values and corrections with answers known by hand or by theorem."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tracer.ablate import LogitDifference, LogProb, Probability, benjamini_hochberg, effect, holm, null, random_sets
from tracer.ablate.estimates import p_value
from tracer.config import InitConfig, ModelConfig
from tracer.model import Transformer

TOKENS = torch.randint(0, 11, (4, 9), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def model() -> Transformer:
    config = ModelConfig(n_layers=2, n_heads=6, d_model=12, n_ctx=9, d_vocab=11, init=InitConfig(attn=0.6))
    return Transformer(config, seed=1).double().eval().requires_grad_(False)


NAN = float("nan")
BY_HAND = [
    (holm, [0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
    (holm, [0.5, 0.6, 0.02], [1.0, 1.0, 0.06]),
    (holm, [0.3], [0.3]),
    (benjamini_hochberg, [0.01, 0.04, 0.03, 0.005], [0.02, 0.04, 0.04, 0.02]),
    (benjamini_hochberg, [0.5, 0.6, 0.02], [0.6, 0.6, 0.06]),
    (benjamini_hochberg, [0.9, 0.9], [0.9, 0.9]),
    (holm, [0.01, NAN, 0.04], [0.02, NAN, 0.04]),
    (benjamini_hochberg, [NAN, 0.01, 0.04, NAN], [NAN, 0.02, 0.04, NAN]),
    (holm, [NAN], [NAN]),
]


@pytest.mark.parametrize(("correct", "p", "adjusted"), BY_HAND)
def test_corrections_by_hand(correct, p: list[float], adjusted: list[float]) -> None:
    np.testing.assert_allclose(correct(np.array(p)), adjusted, atol=1e-12)
    np.testing.assert_allclose(correct(np.array([p])), [adjusted], atol=1e-12)  # any shape: that of a sweep


def test_p_values_by_hand() -> None:
    mean, half = np.array([0.0, 1.0, -1.0, 2.575829, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 1.959964, np.nan, 0.0])
    found = p_value(mean, mean - half, mean + half)  # one half width is 1.96 standard deviations, as at the 5 % level
    np.testing.assert_allclose(found, [1, 0.05, 0.05, 0.01, np.nan, 1], atol=1e-6)
    assert not (holm(np.full(3, np.nan)) < 0.05).any()


def test_many_tries_are_corrected_for() -> None:
    effect = np.array([1.0, 0.21])
    assert (holm(p_value(effect, effect - 0.2, effect + 0.2)) < 0.05).all()
    many = np.tile(effect[1:], 20)
    assert not (holm(p_value(many, many - 0.2, many + 0.2)) < 0.05).any()


def test_corrections_hold_what_they_promise() -> None:
    """40 true nulls of 50 independent tests: Benjamini-Hochberg's share of false rejections is 0.8 times the level, and
    Holm rejects a true one at all with a probability below the level."""
    rng, level, shares, families = np.random.default_rng(0), 0.1, [], []
    for _ in range(2000):
        p = np.concatenate([rng.uniform(size=40), rng.uniform(size=10) * 1e-3])
        rejected = benjamini_hochberg(p) <= level
        shares.append(rejected[:40].sum() / max(1, rejected.sum()))
        families.append((holm(p) <= level)[:40].any())
    assert np.mean(shares) == pytest.approx(0.8 * level, abs=0.007)
    assert 0.05 < np.mean(families) < level + 0.01


def test_random_sets_have_as_many_heads_in_each_layer(model: Transformer) -> None:
    like = [(0, 1), (0, 2), (1, 5)]
    found = random_sets(model, like, n=50)
    assert len(set(found)) == 50 and tuple(like) not in found
    for chosen in found:
        assert [layer for layer, _ in chosen] == [0, 0, 1] and len(set(chosen)) == 3
    assert found == random_sets(model, like, n=50) != random_sets(model, like, n=50, seed=1)


def test_all_other_sets_when_they_are_few(model: Transformer) -> None:
    assert sorted(random_sets(model, [(1, 2)], n=5)) == [((1, h),) for h in (0, 1, 3, 4, 5)]
    assert len(random_sets(model, [(0, 0), (0, 1), (1, 3)], n=10_000)) == 15 * 6 - 1


@pytest.mark.parametrize("metric", [None, LogitDifference(3, 4), LogProb(3), Probability(3)])
def test_the_heads_of_a_layer_have_every_rank_once(model: Transformer, metric) -> None:
    found = [null(model, TOKENS, [(1, head)], metric=metric) for head in range(6)]
    assert sorted(one.p for one in found) == pytest.approx([rank / 6 for rank in range(1, 7)])
    assert {one.smallest_p for one in found} == {1 / 6}
    worst = max(found, key=lambda one: one.effect if metric is None else -one.effect)
    assert worst.p == pytest.approx(1 / 6) and worst.percentile == pytest.approx(100)
    assert max(found, key=lambda one: one.p).percentile == pytest.approx(0)


def test_a_set_that_does_as_much_harm_counts(model: Transformer) -> None:
    """Heads that write nothing do as little as one another, so none of them stands out."""
    idle = Transformer(model.config, seed=1).double().eval().requires_grad_(False)
    idle.get_parameter("blocks.1.attn.W_O").zero_()
    found = null(idle, TOKENS, [(1, 2)])
    assert not found.others.any() and (found.effect, found.p, found.percentile) == (0, 1, 0)


def test_the_null_is_made_of_exact_effects(model: Transformer) -> None:
    heads = [(0, 1), (1, 2)]
    found = null(model, TOKENS, heads, "mean", n=20, seed=4)
    assert found.effect == pytest.approx(effect(model, TOKENS, heads, "mean").mean, abs=1e-12)
    expected = [effect(model, TOKENS, other, "mean").mean for other in random_sets(model, heads, 20, 4)]
    np.testing.assert_allclose(found.others, expected, atol=1e-12)


def test_sets_without_a_null(model: Transformer) -> None:
    with pytest.raises(ValueError, match="whole layers have nothing to be compared with"):
        null(model, TOKENS, [(1, head) for head in range(6)])
    with pytest.raises(ValueError, match="the set of heads is empty"):
        null(model, TOKENS, [])
