"""Statistics of a model's own weights: those of the same pattern from q and k, and what cannot be known."""

import math

import pytest
import torch

from tests.heads.fields import field
from tracer.heads import definitions, head_means, pattern, stats, stats_from_pattern
from tracer.heads.call import AttentionCall
from tracer.heads.masks import visible

generator = torch.Generator().manual_seed(0)
Q, K = torch.randn(2, 2, 20, 3, 8, generator=generator)
TOKENS = torch.randint(0, 5, (2, 20), generator=generator)
FIELDS = (*definitions.ROWS, "thumbs")


@pytest.mark.parametrize("causal", [True, False])
def test_same_as_from_q_and_k(causal: bool) -> None:
    weights = pattern(Q, K, scale=0.5, causal=causal)
    got = stats_from_pattern(weights, TOKENS, causal=causal, thumbs=6)
    want = stats(Q, K, TOKENS, scale=0.5, causal=causal, thumbs=6)
    for name in FIELDS:
        torch.testing.assert_close(field(got, name), field(want, name), atol=1e-5, rtol=1e-5, equal_nan=True)
    averages, expected = head_means(got), head_means(want)
    assert averages.pop("max_logit").isnan().all()
    for name, value in averages.items():
        torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=1e-5)
    assert got.lse.isnan().all()
    assert got.z is None


def test_weights_of_half_precision() -> None:
    weights = pattern(Q, K, scale=0.5).bfloat16()
    assert stats_from_pattern(weights, causal=True)["entropy"].dtype == torch.float32


def test_rows_of_zeros_are_padding() -> None:
    weights = pattern(Q, K, scale=0.5)
    weights[:, :, 5] = 0
    got = stats_from_pattern(weights, TOKENS, causal=True)
    for name in FIELDS[:-1]:
        assert field(got, name)[:, :, 5].isnan().all(), name
        assert not field(got, name)[:, :, 6].isnan().any(), name
    kept = [q for q in range(1, 20) if q != 5]
    full = stats(Q, K, scale=0.5)["entropy"]
    torch.testing.assert_close(head_means(got)["entropy"], full[:, :, kept].mean((0, 2)))


def test_a_rectangle_has_no_diagonal() -> None:
    got = stats_from_pattern(torch.full((1, 2, 3, 4), 0.25), causal=False)
    assert got["entropy"].flatten().tolist() == pytest.approx([math.log(4)] * 6)
    assert got["entropy_normalised"].flatten().tolist() == pytest.approx([1.0] * 6)
    for name in ("current_token", "previous_token", "attended_distance"):
        assert field(got, name).isnan().all()
    with pytest.raises(ValueError, match="3 queries and 4 keys"):
        stats_from_pattern(torch.full((1, 2, 3, 4), 0.25), torch.zeros(1, 3, dtype=torch.long), causal=False)


@pytest.mark.parametrize("hides", [-math.inf, -1e4, torch.finfo(torch.float32).min])
def test_with_what_is_known_of_the_scores_nothing_is_missing(hides: float) -> None:
    """A window of three keys: rows see 1, 2, 3, 3, ... of them."""
    apart = torch.arange(20)[:, None] - torch.arange(20)
    mask = torch.zeros(20, 20).masked_fill((apart < 0) | (apart > 2), hides)
    scores_ = torch.einsum("bqhd,bkhd->bhqk", Q, K) * 0.5 + mask
    seen = visible(scores_).sum(-1)
    assert seen[0, 0].tolist() == [1, 2, *[3] * 18]
    got = stats_from_pattern(scores_.softmax(-1), TOKENS, causal=True, largest=scores_.amax(-1), seen=seen)
    want = stats(Q, K, TOKENS, scale=0.5, causal=True, mask=mask)
    for name in (*FIELDS[:-1], "lse", "max_logit"):
        torch.testing.assert_close(field(got, name), field(want, name), atol=1e-5, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("from_weights", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_the_weight_of_one_key_in_every_row(from_weights: bool, shared: bool) -> None:
    k = K[:, :, :1] if shared else K
    mask = torch.arange(20) > torch.tensor([4, 0])[:, None, None, None]
    whole, key = pattern(Q, k, scale=0.5, mask=mask), torch.tensor([5, 1])
    seen = stats(Q, k, scale=0.5, mask=mask)
    call = AttentionCall(0, k, Q, k, 0.5, True, mask)
    if from_weights:
        call = AttentionCall(0, k, weights=whole)
    got = call.weight(key, seen.lse)
    for i in range(2):
        torch.testing.assert_close(got[i, :, key[i] :], whole[i, :, key[i] :, key[i]], atol=1e-6, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_an_extra_key_is_one_more_that_every_row_could_see(causal: bool) -> None:
    """Even over all keys that a row sees and two that are no positions: as undecided as can be."""
    positions = torch.ones(4, 4).tril() if causal else torch.ones(4, 4)
    weights = torch.cat([positions, torch.ones(4, 2)], 1)
    got = stats_from_pattern((weights / weights.sum(1, keepdim=True))[None, None], causal=causal, extra=2)
    assert got["entropy_normalised"].flatten().tolist() == pytest.approx([1.0] * 4)
    assert got["confidence"].flatten().tolist() == pytest.approx((1 / weights.sum(1)).tolist())
    assert got["first_token"].flatten().tolist() == pytest.approx((1 / weights.sum(1)).tolist())
