"""Which rows count for which number."""

import pytest
import torch

from tracer.data.probes import repeated
from tracer.heads import definitions, head_means, pattern, probe_errors, probe_scores, stats
from tracer.heads.averages import head_errors
from tracer.measures import HEAD_MEASURES, NO_MEANS, REPEAT_MEASURES, TEXT_MEASURES

generator = torch.Generator().manual_seed(0)
Q, K = torch.randn(2, 3, 12, 2, 4, generator=generator)
TOKENS = torch.randint(0, 4, (3, 12), generator=generator)
PATTERN = pattern(Q, K, scale=0.5)
ROWS = {
    "entropy": definitions.entropy(PATTERN),
    "entropy_normalised": definitions.entropy_normalised(PATTERN),
    "confidence": definitions.confidence(PATTERN),
    "previous_token": definitions.previous_token(PATTERN),
    "current_token": definitions.current_token(PATTERN),
    "first_token": definitions.first_token(PATTERN),
    "attended_distance": definitions.attended_distance(PATTERN),
    "duplicate_token": definitions.duplicate_token(PATTERN, TOKENS),
    "induction": definitions.induction(PATTERN, TOKENS),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(("rows", "which"), [(None, range(1, 12)), (slice(5, 9), range(5, 9))])
def test_mean_over_batch_and_rows(name: str, rows: slice | None, which: range) -> None:
    measured = stats(Q, K, TOKENS, scale=0.5)
    value = head_means(measured)[name] if rows is None else head_means(measured, rows)[name]
    expected = torch.stack([ROWS[name][:, :, q] for q in which]).mean((0, 1))
    torch.testing.assert_close(value, expected)


def test_max_logit_is_the_largest_of_the_batch() -> None:
    measured = stats(Q, K, scale=0.5)
    assert head_means(measured)["max_logit"].tolist() == measured.max_logit.max(0).values.tolist()
    assert head_means(measured, slice(3, 4))["max_logit"].tolist() == measured.max_logit.max(0).values.tolist()


@pytest.mark.parametrize("rows", [slice(1, None), slice(6, 11)])
def test_a_fixed_distance_is_where_most_is(rows: slice) -> None:
    """By hand in float64: twelve tokens, so 2 to 6 back, of rows that have more than that before them."""
    wide, measured = PATTERN.double(), stats(Q, K, scale=0.5)
    got, errors = head_means(measured, rows), head_errors(measured, rows)
    for head in range(2):
        found = {}
        for d in range(2, 7):
            kept = [q for q in range(12)[rows] if q > d]
            by_row = torch.stack([wide[:, head, q, q - d] for q in kept])
            found[d] = by_row.mean().item(), (by_row.mean(0).std() / 3**0.5).item()
        best = max(found, key=lambda d: found[d][0])
        assert (got["fixed_distance_at"][head], got["fixed_distance"][head].item()) == (
            best, pytest.approx(found[best][0], abs=1e-6),
        )  # fmt: skip
        assert errors["fixed_distance"][head].item() == pytest.approx(found[best][1], abs=1e-6)


@pytest.mark.parametrize("n", [1, 3])
def test_three_tokens_have_no_fixed_distance(n: int) -> None:
    got = head_means(stats(Q[:, :n], K[:, :n], scale=0.5))
    assert got["fixed_distance"].isnan().all() and got["fixed_distance_at"].isnan().all()


def test_copies_need_tokens() -> None:
    assert set(head_means(stats(Q, K, scale=0.5))) == set(TEXT_MEASURES)
    assert set(head_means(stats(Q, K, TOKENS, scale=0.5))) == {*TEXT_MEASURES, *REPEAT_MEASURES}


def test_one_row_alone_has_no_average() -> None:
    assert head_means(stats(Q[:, :1], K[:, :1], scale=0.5))["entropy"].isnan().all()


def test_each_measure_comes_from_its_probe() -> None:
    probe = repeated(d_vocab=20, n_ctx=12, batch=3)
    n = probe.tokens.shape[1]
    text, repeat = stats(Q, K, scale=0.5), stats(K[:, :n], Q[:, :n], probe.tokens, scale=0.5)
    control = stats(Q[:, :n], Q[:, :n], probe.tokens, scale=0.5)
    found = probe_scores(text, repeat, control, probe.second_copy)
    assert set(found) == set(HEAD_MEASURES)
    on_repeat, without = head_means(repeat, probe.second_copy), head_means(control, probe.second_copy)
    expected = {**head_means(text), **{name: on_repeat[name] for name in REPEAT_MEASURES}}
    expected |= {"induction_control": without["induction"], "duplicate_control": without["duplicate_token"]}
    assert all(found[name].tolist() == value.tolist() for name, value in expected.items())


def test_padding_is_left_out() -> None:
    seen = torch.arange(12) >= torch.tensor([0, 5, 12])[:, None]
    measured = stats(Q, K, TOKENS, scale=0.5, mask=seen.view(3, 1, 1, 12))
    got = head_means(measured, slice(None))
    for name, value in (("entropy", measured["entropy"]), ("attended_distance", measured["attended_distance"])):
        kept = [value[b, :, q] for b, first in enumerate((0, 5, 12)) for q in range(first, 12)]
        torch.testing.assert_close(got[name], torch.stack(kept).mean(0))
    assert measured.max_logit[2].tolist() == [-float("inf")] * 2
    assert got["max_logit"].tolist() == measured.max_logit[:2].amax(0).tolist()


def test_a_batch_of_padding_alone_has_no_scores() -> None:
    measured = stats(Q, K, TOKENS, scale=0.5, mask=torch.zeros(1, dtype=torch.bool))
    assert all(value.isnan().all() for value in head_means(measured).values())


@pytest.mark.parametrize("shape", [(1, 2, 7), (3, 5, 64), (16, 4, 63), (2, 12, 1024), (7, 1, 333)])
def test_without_padding_it_is_the_mean(shape: tuple[int, int, int]) -> None:
    batch, head, pos = shape
    q, k = torch.randn(2, batch, pos, head, 4, generator=torch.Generator().manual_seed(pos))
    measured = stats(q, k, scale=0.5)
    for name in ("entropy", "previous_token"):  # added up in an order of each CPU's own
        torch.testing.assert_close(head_means(measured)[name], measured[name][..., 1:].mean((0, 2)), rtol=1e-6, atol=0)


def test_a_broken_row_is_not_left_out() -> None:
    broken = K.clone()
    broken[0, 8] = float("nan")
    assert head_means(stats(Q, broken, scale=0.5))["entropy"].isnan().all()


@pytest.mark.parametrize("name", ROWS)
def test_the_error_of_a_mean_is_that_of_the_sequences_means(name: str) -> None:
    got = head_errors(stats(Q, K, TOKENS, scale=0.5))[name]
    means = torch.stack([ROWS[name][:, :, q] for q in range(1, 12)]).mean(0)
    torch.testing.assert_close(got, means.std(0) / 3**0.5)


def test_longer_sequences_count_for_more_in_an_error() -> None:
    seen = torch.arange(12) >= torch.tensor([0, 5, 11])[:, None]
    got = head_errors(stats(Q, K, scale=0.5, mask=seen.view(3, 1, 1, 12)), slice(None))["attended_distance"]
    rows = stats(Q, K, scale=0.5, mask=seen.view(3, 1, 1, 12))["attended_distance"].double()
    sums, counts = rows.nansum(2), torch.tensor([[12.0], [7.0], [1.0]]).double()
    mean = sums.sum(0) / 20
    expected = (3 / 2 * ((sums - mean * counts) ** 2).sum(0)).sqrt() / 20  # Cochran 1977, 2.11
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-7)


def test_one_sequence_has_no_error() -> None:
    assert head_errors(stats(Q[:1], K[:1], scale=0.5))["entropy"].isnan().all()


def test_errors_are_of_the_probe_of_their_measure() -> None:
    probe = repeated(d_vocab=20, n_ctx=12, batch=3)
    n = probe.tokens.shape[1]
    text, repeat = stats(Q, K, scale=0.5), stats(K[:, :n], Q[:, :n], probe.tokens, scale=0.5)
    both = probe_errors(text, repeat, repeat, probe.second_copy)
    assert set(both) == {f"{name}_se" for name in HEAD_MEASURES if name not in NO_MEANS}
    assert both["induction_se"].tolist() == head_errors(repeat, probe.second_copy)["induction"].tolist()
    assert both["entropy_se"].tolist() == head_errors(text)["entropy"].tolist()
