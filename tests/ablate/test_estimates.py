"""Random sets, p-values and corrections with answers known by hand or by theorem."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from tests.tiers import quick
from tracer.ablate import (
    LogitDifference,
    LogProb,
    Probability,
    benjamini_hochberg,
    effect,
    effects,
    estimate,
    holm,
    null,
    random_sets,
    sweep,
)
from tracer.ablate.estimates import p_value, sequences_needed, too_few
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


SPREAD = np.arange(-6.0, 7.0)
"""13 values around 0 of standard deviation sqrt(182 / 12), without skewness."""

SKEWED = [0.9, 1.0, 1.1, 1.2, 1.0, 0.8, 0.7, 0.9, 1.0, 1.1, 1.2, -1.5, 0.9, 1.3]
_G, _T = float(scipy.stats.skew(SKEWED)) * (13 / 14) ** 1.5, np.mean(SKEWED) / np.std(SKEWED, ddof=1) * 14**0.5
HALL = _T + _G * (2 * _T**2 + 1) / (6 * 14**0.5) + _G**2 * _T**3 / (27 * 14)
"""Hall 1992: Student's t of 14 values with their skewness taken off, g1 of the standard deviation with n - 1."""


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([0.0, 0.0, 0.0], 1),
        ([1.0, NAN, 2.0], NAN),
        ([1.0], NAN),
        ([1.0, 1.0], 1 / 2),  # 2 of 4 signs give a sum as far from 0
        ([3.0, 4.0, 5.0, 6.0], 2 / 16),
        ([-3.0, -4.0, -5.0, -6.0], 2 / 16),
        ([1.0, 2.0, -0.5], 4 / 8),  # 2 of the 8 subsets have a sum of at most 0: none, and the last value alone
        (SPREAD + 2.1788 * (182 / 12 / 13) ** 0.5, 0.05),  # Student's t of 12 degrees of freedom, from a table
        (SPREAD + 3.0545 * (182 / 12 / 13) ** 0.5, 0.01),
        (SKEWED, 2 * float(scipy.stats.t.sf(HALL, 13))),
        ([2.0] * 13, 2 / 2**13),  # never below what sign flips could give, though there is no spread
    ],
)
def test_p_values_by_hand(values: list[float], p: float) -> None:
    np.testing.assert_allclose(p_value(np.array(values)), p, rtol=1e-4)
    np.testing.assert_allclose(p_value(-np.array([values, values])), [p, p], rtol=1e-4)


@pytest.mark.parametrize("n", [2, 5, 8, 12, 13, 40])
def test_p_is_never_surer_than_the_interval(n: int) -> None:
    """They come from one distribution: below 0.05 only where the interval of that head excludes 0."""
    for values in np.random.default_rng(n).normal(0.6, 1, (300, n)):
        one = estimate(values)
        assert p_value(values) > 0.05 or one.low > 0 or one.high < 0


KINDS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "uniform": lambda rng, size: rng.uniform(-1, 1, size),
    "heavy tails": lambda rng, size: rng.standard_t(3, size),
    "skewness 0.5": lambda rng, size: rng.gamma(16, size=size) - 16,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", quick([8, 16, 144], (8, 16)))
@pytest.mark.parametrize("n", quick([2, 3, 8, 10, 16, 32], (2, 8, 32)))
def test_with_no_effect_anywhere_no_head_is_left(n: int, heads: int, kind: str) -> None:
    """Of 500 sweeps in which nothing has an effect, one head or more is left in 5 of 100 at most."""
    rng, families = np.random.default_rng(n), 500
    p = p_value(KINDS[kind](rng, (families, heads, n)))
    left = sum(bool((holm(one) < 0.05).any()) for one in p)
    assert left / families <= 0.05 + 3 * (0.05 * 0.95 / families) ** 0.5


@pytest.mark.parametrize(("n", "layers"), [(2, 4), (8, 12)])
def test_a_sweep_of_nothing_leaves_no_head(n: int, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers without an effect are put in where heads are switched off; all that is made of them is the sweep's."""
    config = ModelConfig(n_layers=layers, n_heads=layers, d_model=12, n_ctx=4, d_vocab=11)
    model, tokens, rng = Transformer(config).eval(), torch.ones(n, 4, dtype=torch.int64), np.random.default_rng(n)
    monkeypatch.setattr(effects, "_changes", lambda *_, **how: rng.standard_normal((layers**2, n)))
    left = sum(bool((sweep(model, tokens, interval=True)["p_holm"] < 0.05).any()) for _ in range(40))
    assert left <= 6


@pytest.mark.parametrize(("n", "heads", "needed"), [(2, 8, 9), (8, 8, 9), (9, 16, 10), (12, 144, 13), (2, 1, 6)])
def test_too_few_sequences_are_said(n: int, heads: int, needed: int) -> None:
    """The clearest effect there can be is not left with one sequence less than are needed, and is with them."""
    assert f"It takes {needed} sequences" in too_few(n, heads) and sequences_needed(heads) == needed
    assert too_few(needed, heads) == ""
    clearest = np.concatenate([np.full((1, needed), 5.0), np.zeros((heads - 1, needed))])
    assert holm(p_value(clearest))[0] < 0.05 < holm(p_value(clearest[:, 1:]))[0]


def test_a_sweep_says_that_it_has_too_few_sequences(model: Transformer) -> None:
    found = sweep(model, TOKENS, interval=True)
    assert found["p_holm"].attrs["note"] == (
        "With 4 sequences no head can be significant: corrected for 12 heads, p can't be below 1. It takes 9 sequences."
    )
    assert not (found["p_holm"] < 0.05).any()
    assert sweep(model, TOKENS.repeat(3, 1), interval=True)["p_holm"].attrs["note"] == ""


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
