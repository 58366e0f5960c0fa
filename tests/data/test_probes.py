"""Probes whose answers are known, and the losses read from them."""

import math

import pytest
import torch

from tracer.data import probes
from tracer.measures import period


@pytest.mark.parametrize(
    ("d_vocab", "n_ctx", "expected"),
    [
        (1024, 64, 25),
        (1024, 51, 25),
        (1024, 50, 24),
        (1024, 52, 25),
        (65, 64, 25),
        (11, 64, 10),
        (100, 3, 1),
        (2, 9, 1),
    ],
)
def test_period(d_vocab: int, n_ctx: int, expected: int) -> None:
    assert period(d_vocab, n_ctx) == expected


@pytest.mark.parametrize(("d_vocab", "n_ctx", "bos"), [(1024, 64, 0), (26, 64, 0), (65, 40, 7), (2, 3, 1)])
def test_repeat_probe(d_vocab: int, n_ctx: int, bos: int) -> None:
    probe = probes.repeated(d_vocab, n_ctx, bos)
    length = period(d_vocab, n_ctx)
    assert probe.period == length
    assert probe.tokens.shape == (32, 2 * length + 1)
    assert probe.tokens.shape[1] <= n_ctx
    for row in probe.tokens.tolist():
        first, second = row[1 : length + 1], row[length + 1 :]
        assert row[0] == bos
        assert first == second
        assert len(set(first)) == length
        assert bos not in first
        assert all(0 <= token < d_vocab for token in first)


def test_every_second_copy_query_finds_its_key() -> None:
    probe = probes.repeated(100, 64)
    length, tokens = 25, probe.tokens
    rows = range(*probe.second_copy.indices(tokens.shape[1]))
    assert list(rows) == list(range(26, 51))
    for q in rows:
        assert (tokens[:, q - length] == tokens[:, q]).all()  # the key q - L + 1 comes right after it


def test_predictable_losses_have_a_target_that_followed_before() -> None:
    probe = probes.repeated(100, 64)
    positions = range(*probe.predictable.indices(50))
    assert list(positions) == list(range(26, 50))
    for j in positions:
        target, before = probe.tokens[:, j + 1], probe.tokens[:, j - 25 + 1]
        assert (target == before).all()


def test_probes_are_fixed_and_seeded() -> None:
    assert torch.equal(probes.repeated(100, 64).tokens, probes.repeated(100, 64).tokens)
    assert not torch.equal(probes.repeated(100, 64, seed=1).tokens, probes.repeated(100, 64, seed=2).tokens)
    assert not torch.equal(probes.repeated(100, 64).tokens[0], probes.repeated(100, 64).tokens[1])


@pytest.mark.parametrize(("d_vocab", "n_ctx"), [(100, 2), (1, 64)])
def test_no_room_for_a_repeat(d_vocab: int, n_ctx: int) -> None:
    with pytest.raises(ValueError, match=f"n_ctx={n_ctx} and d_vocab={d_vocab}"):
        probes.repeated(d_vocab, n_ctx)


@pytest.mark.parametrize("extra", [0, 1])
def test_per_token_loss_predicts_the_next_token(extra: int) -> None:
    tokens = torch.tensor([[0, 2, 1, 2]])
    logits = torch.log(torch.tensor([[[0.2, 0.3, 0.5], [0.1, 0.6, 0.3], [0.0, 0.1, 0.9], [1 / 3, 1 / 3, 1 / 3]]]))
    expected = [0.5, 0.6, 0.9]
    if extra:
        tokens, expected = torch.cat([tokens, torch.tensor([[1]])], 1), [*expected, 1 / 3]
    loss = probes.per_token_loss(logits, tokens)
    assert loss[0].tolist() == pytest.approx([-math.log(p) for p in expected], rel=1e-5)


def test_half_precision_logits_give_float32_losses() -> None:
    loss = probes.per_token_loss(torch.zeros(1, 3, 1024, dtype=torch.bfloat16), torch.zeros(1, 3, dtype=torch.long))
    assert loss.dtype == torch.float32
    assert loss[0].tolist() == pytest.approx([math.log(1024)] * 2, rel=1e-6)


def test_repeat_and_first_copy_read_the_same_targets() -> None:
    length = 4  # tokens: BOS a b c d a b c d; entry j predicts token j + 1
    loss = torch.tensor([[9.0, 1, 2, 3, 50, 10, 20, 30], [9.0, 1, 2, 3, 70, 10, 20, 30]])
    assert probes.first_copy_loss(loss, length) == 2
    assert probes.repeat_loss(loss, length) == 20


def test_a_period_of_one_has_nothing_predictable() -> None:
    assert probes.repeat_loss(torch.zeros(2, 2), 1).isnan()


@pytest.mark.parametrize(("n_ctx", "width", "short"), [(512, 64, 115), (64, 8, 14), (16, 2, 4), (2, 1, 2), (1, 1, 2)])
def test_the_same_tokens_are_predicted_with_and_without_context(n_ctx: int, width: int, short: int) -> None:
    rows = torch.arange(3 * (n_ctx + 1)).view(3, -1)
    probe = probes.in_context(rows, bos=-1)
    assert (probe.width, probe.full.shape[1], probe.short.shape[1]) == (width, n_ctx + 1, short)
    assert torch.equal(probe.full[:, -width:], probe.short[:, -width:])
    assert torch.equal(probe.short, rows[:, -probe.short.shape[1] :])


def test_a_short_row_begins_as_its_row_does() -> None:
    rows = torch.arange(1, 35).repeat(2, 1)
    rows[1, 0] = 0
    assert probes.in_context(rows, bos=0).short[:, 0].tolist() == [rows[0, -7], 0]


def test_icl_score_is_the_difference_on_the_same_tokens() -> None:
    rows = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]])
    probe = probes.in_context(rows, bos=9)
    sure, unsure = torch.tensor([[[0.0, 0, 8], [8.0, 0, 0]]]), torch.zeros(1, 2, 3)
    nats = lambda p: -math.log(p)  # noqa: E731
    late, early = probe.losses(sure), probe.losses(unsure)  # targets 0 and 1: both wrong
    wrong = nats(1 / (2 + math.exp(8)))
    assert late[0].tolist() == pytest.approx([wrong, wrong]) and early[0].tolist() == pytest.approx([math.log(3)] * 2)
    assert probes.icl_score(late, early).tolist() == pytest.approx([wrong - math.log(3)])


def test_standard_error() -> None:
    rows = torch.tensor([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    assert probes.standard_error(rows).tolist() == pytest.approx([math.sqrt(7 / 3), 0])
    assert probes.standard_error(rows[:1]).isnan().all()
