"""One layer's attention as a value: what it says whether it holds scores or weights, whole, cut and put together."""

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from tracer.heads.call import AttentionCall, merged, values

generator = torch.Generator().manual_seed(0)
Q, K, V = (torch.randn(3, 5, heads, 4, generator=generator) for heads in (4, 2, 2))
MASK = torch.rand(3, 4, 5, 5, generator=generator) > 0.2
MASK[1, 2, 3] = False  # a row that sees no key
SCORED = AttentionCall(layer=1, v=V, q=Q, k=K, scale=0.5, mask=MASK, first_head=4)


def weighed(scored: AttentionCall) -> AttentionCall:
    """The same call, of a model that makes its own pattern and whose scores were seen."""
    return scored._explicit()


def same(found: Tensor | None, expected: Tensor | None) -> None:
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5, equal_nan=True)


def by_hand() -> tuple[Tensor, Tensor]:
    """Scores and weights of every head, one number at a time."""
    scores = torch.full((3, 4, 5, 5), -torch.inf)
    for batch, head, query, key in torch.cartesian_prod(*map(torch.arange, (3, 4, 5, 5))).tolist():
        if key <= query and MASK[batch, head, query, key]:
            scores[batch, head, query, key] = 0.5 * Q[batch, query, head] @ K[batch, key, head // 2]
    return scores, scores.softmax(-1).nan_to_num(0.0)


@pytest.mark.parametrize("call", [SCORED, weighed(SCORED)], ids=["scores", "weights"])
def test_what_it_says_is_the_same_whether_it_holds_scores_or_weights(call: AttentionCall) -> None:
    scores, weights = by_hand()
    assert call.shape == (3, 5, 5) and call.n_heads == 4 and call.heads == slice(4, 8) and call.positions == 5
    same(call.pattern(), weights)
    same(call.pattern(slice(2, 4)), weights[:, :, 2:4])
    same(call.row_maxima(), scores.amax(-1))
    assert call.row_maxima()[1, 2, 3] == -torch.inf
    stats = call.stats(z=True)
    same(stats.max_logit, scores.amax((-1, -2)))
    same(stats["confidence"].nan_to_num(0.0), weights.amax(-1))
    keys = scores.isfinite().sum(-1)
    same(stats["entropy_normalised"], torch.special.entr(weights).sum(-1) / keys.where(keys > 1, torch.nan).log())
    if call.weights is not None:
        assert call.q is None and call.k is None and call.mask is None
    else:
        same(stats.z, values(weights, V))


def test_scores_that_were_not_seen_are_not_known() -> None:
    call = replace(weighed(SCORED), largest=None, seen=None)
    assert call.row_maxima().shape == (3, 4, 5) and call.row_maxima().isnan().all()


def test_without_a_count_of_keys_the_largest_score_stands_as_it_is() -> None:
    call = replace(weighed(SCORED), seen=None)
    assert call.largest is not None
    same(call.row_maxima(), call.largest.squeeze(-1))


@pytest.mark.parametrize("call", [SCORED, weighed(SCORED)], ids=["scores", "weights"])
@pytest.mark.parametrize("index", range(4))
def test_a_head_alone(call: AttentionCall, index: int) -> None:
    one = call.head(index)
    assert one.n_heads == 1 and one.heads == slice(4 + index, 5 + index) and one.v.shape[2] == 1
    same(one.pattern(), call.pattern()[:, index : index + 1])
    same(one.row_maxima(), call.row_maxima()[:, index : index + 1])
    same(values(one.pattern(), one.v), values(call.pattern(), call.v)[:, :, index : index + 1])


@pytest.mark.parametrize("call", [SCORED, weighed(SCORED)], ids=["scores", "weights"])
def test_heads_that_were_computed_apart_are_one_layer(call: AttentionCall) -> None:
    parts = [call.head(index) for index in range(4)]
    whole = merged([replace(part, mask=None) for part in parts])
    expected = replace(call, mask=None)
    assert (whole.layer, whole.first_head, whole.n_heads) == (1, 4, 4)
    same(whole.pattern(), values_each(expected))
    assert whole.v.shape[2] == 4
    assert merged(parts[:1]) is parts[0]
    assert (whole.weights is None) == (call.weights is None) == (whole.q is not None)


def values_each(call: AttentionCall) -> Tensor:
    """The pattern of each head alone, beside the others."""
    return torch.cat([call.head(index).pattern() for index in range(call.n_heads)], 1)


@pytest.mark.parametrize("call", [SCORED, weighed(SCORED)], ids=["scores", "weights"])
def test_the_first_sequences_are_a_copy(call: AttentionCall) -> None:
    kept, bare = call.first(2), call.first(2, values=False)
    same(kept.pattern(), call.pattern()[:2])
    assert bare.v.shape == (2, 5, 2, 0) and kept.v.shape == (2, 5, 2, 4)
    same(bare.pattern(), call.pattern()[:2])
    for field in fields(AttentionCall):
        old, new = getattr(call, field.name), getattr(kept, field.name)
        if isinstance(old, Tensor):
            same(new, old[:2])
            assert new.untyped_storage().data_ptr() != old.untyped_storage().data_ptr(), field.name


@pytest.mark.parametrize("rows", [slice(None), slice(1, 3), torch.tensor([4, 0])])
@pytest.mark.parametrize("mask", [None, MASK, MASK[:, :, :1]])
@pytest.mark.parametrize("causal", [True, False])
def test_mask_and_causality_as_one_mask(rows: slice | Tensor, mask: Tensor | None, causal: bool) -> None:
    """The last key is no position: no row is before it."""
    call = replace(SCORED, mask=mask, causal=causal, extra=("sink",))
    expected = torch.ones(3, 4, 5, 5, dtype=torch.bool) if mask is None else mask.expand(3, 4, 5, 5)
    if causal:
        expected = expected & (torch.ones(5, 5, dtype=torch.bool).tril() | (torch.arange(5) == 4))
    found = call.full_mask(rows)
    if mask is None and not causal:
        assert found is None
    else:
        assert found is not None and bool((found.expand(3, 4, -1, 5) == expected[:, :, rows]).all())


def test_the_weight_of_one_key_where_there_are_fewer_queries_than_keys() -> None:
    """A hidden key has none; others have that of the pattern."""
    hidden = torch.tensor([True, True, False, True, True])[None, None, None]
    call = replace(SCORED, q=Q[:, :3], causal=False, mask=hidden)
    scores = torch.einsum("bqhd,bkhd->bhqk", Q[:, :3], K.repeat_interleave(2, 2)) * 0.5
    scores = scores.masked_fill(~hidden, -torch.inf)
    found = call.weight(torch.tensor([4, 2, 0]), scores.logsumexp(-1))
    same(found, torch.stack([scores.softmax(-1)[batch, :, :, key] for batch, key in enumerate([4, 2, 0])]))
    assert (found[1] == 0).all()


@pytest.mark.parametrize("causal", [True, False])
def test_some_rows_beside_keys_that_are_no_positions(causal: bool) -> None:
    call = replace(SCORED, extra=("zero",), causal=causal)
    same(call.pattern(slice(1, 3)), weighed(call).pattern()[:, :, 1:3])


@pytest.mark.parametrize("extra", [(), ("zero",)])
def test_numbers_are_as_exact_where_the_model_runs_in_half_precision(extra: tuple[str, ...]) -> None:
    call = replace(SCORED, extra=extra)
    with torch.autocast("cpu", torch.bfloat16):
        maxima, weights, stats = call.row_maxima(), call.pattern(), call.stats()
    same(maxima, call.row_maxima())
    same(weights, call.pattern())
    same(stats.lse, call.stats().lse)
    assert (maxima.dtype, weights.dtype, stats.lse.dtype) == (torch.float32,) * 3


@pytest.mark.parametrize("call", [SCORED, weighed(SCORED)], ids=["scores", "weights"])
def test_sequences_are_those_that_were_chosen(call: AttentionCall) -> None:
    rows = torch.tensor([2, 0])
    for name in ("pattern", "row_maxima"):
        same(getattr(call.sequences(rows), name)(), getattr(call, name)()[rows])
    same(call.sequences(rows).stats()["entropy"], call.stats()["entropy"][rows])
    assert torch.equal(call.sequences(rows).v, V[rows])


def test_one_sequence_may_be_chosen_several_times_and_a_mask_of_all_stays_one() -> None:
    one = weighed(replace(SCORED, q=Q[:1], k=K[:1], v=V[:1], mask=MASK[:1]))
    same(one.sequences(torch.tensor([0, 0])).pattern(), one.pattern().expand(2, -1, -1, -1))
    shared = replace(SCORED, mask=MASK[:1])
    assert shared.sequences(torch.tensor([2, 0])).mask is shared.mask


def test_keys_may_be_fewer_than_queries() -> None:
    """Of a causal call, the queries beyond them see all."""
    call = replace(SCORED, k=K[:, :3], v=V[:, :3], mask=None)
    expected = 0.5 * torch.einsum("bqhd,bkhd->bhqk", Q, K[:, :3].repeat_interleave(2, 2))
    expected = expected.masked_fill(torch.ones(5, 3).triu(1) > 0, -torch.inf).amax(-1)
    same(call.row_maxima(), expected)


def test_a_row_that_a_mask_empties_behind_the_softmax_has_no_score() -> None:
    call = weighed(replace(SCORED, mask=None))
    assert call.weights is not None and call.largest is not None
    weights, largest = call.weights.clone(), call.largest.clone()
    weights[0, 0, 4], largest[0, 0, 4] = 0, 1e3
    assert float(replace(call, weights=weights, largest=largest).stats().max_logit[0, 0]) == float(
        largest[0, 0, :4].max()
    )


@pytest.mark.parametrize("call", [SCORED, weighed(SCORED)], ids=["scores", "weights"])
def test_rows_of_it_know_how_many_scores_they_were_made_of(call: AttentionCall) -> None:
    scores, weights = by_hand()
    rows = torch.tensor([1, 3])
    block = call.row_block(rows)
    same(block.pattern, weights[:, :, rows])
    same(block.lse, scores.logsumexp(-1)[:, :, rows])
    assert block.lse[1, 2, 1] == -torch.inf and list(block.positions) == [1, 3]


def test_rows_of_scores_that_were_not_seen_are_made_of_nobody_knows_what() -> None:
    lse = replace(weighed(SCORED), largest=None, seen=None).row_block(torch.tensor([1, 3])).lse
    assert lse[1, 2, 1] == -torch.inf and lse[0].isnan().all()  # but of no key there is nothing
