"""Probes whose answers are known, and the losses read from them."""

import math

import pytest
import torch

from tracer.data import probes
from tracer.heads.definitions import induction
from tracer.measures import period


@pytest.mark.parametrize(
    ("d_vocab", "n_ctx", "expected"),
    [(1024, 64, 16), (1024, 49, 16), (1024, 48, 15), (65, 64, 16), (11, 64, 3), (100, 4, 1), (3, 9, 1), (100, 3, 0)],
)
def test_period(d_vocab: int, n_ctx: int, expected: int) -> None:
    assert period(d_vocab, n_ctx) == expected


@pytest.mark.parametrize(("d_vocab", "n_ctx", "bos"), [(1024, 64, 0), (49, 64, 0), (65, 40, 7), (4, 4, 1)])
def test_repeat_probe(d_vocab: int, n_ctx: int, bos: int) -> None:
    """Every token of the second copy stands once before, a period back, and nowhere else; in the control it is new."""
    probe = probes.repeated(d_vocab, n_ctx, bos)
    length = period(d_vocab, n_ctx)
    assert probe.period == length and probe.tokens.shape == probe.control.shape == (32, 3 * length + 1)
    assert probe.tokens.shape[1] <= n_ctx
    assert sorted(set(probe.periods.tolist())) == list(range(length, 2 * length + 1))
    for row, new, back in zip(probe.tokens.tolist(), probe.control.tolist(), probe.periods.tolist(), strict=True):
        start = 2 * length + 1
        assert row[0] == bos and row[:start] == new[:start]
        assert len(set(new)) == len(new) and all(0 <= token < d_vocab for token in new)
        for q in range(start, 3 * length + 1):
            assert [k for k in range(q) if row[k] == row[q]] == [q - back]


def test_a_vocabulary_of_two_words_has_a_probe() -> None:
    """An in-context Markov chain of two states."""
    probe = probes.repeated(3, 9, batch=4)
    for row, new in zip(probe.tokens.tolist(), probe.control.tolist(), strict=True):
        assert row[3] in row[1:3] and new[3] != row[3]


@pytest.mark.parametrize("offset", range(64))
def test_no_fixed_distance_scores(offset: int) -> None:
    """A head that looks `offset` back in every row; with one period, the right one scored 1."""
    probe = probes.repeated(1024, 64)
    n = probe.tokens.shape[1]
    pattern = torch.eye(n).roll(-offset, 1).tril()
    pattern[:offset, 0] = 1
    score = induction(pattern.expand(32, 1, n, n), probe.tokens)[..., probe.second_copy].mean()
    assert score <= 2 / 17


def test_one_period_where_it_is_asked_for() -> None:
    probe = probes.repeated(100, 64, 3, batch=4, at=25)
    assert (probe.period, probe.tokens.shape, probe.periods.tolist()) == (25, (4, 51), [25] * 4)
    assert torch.equal(probe.tokens[:, 1:26], probe.tokens[:, 26:]) and (probe.tokens[:, 0] == 3).all()
    assert probe.second_copy == slice(26, 51) and probe.predictable == slice(26, 50)
    assert all(len(set(row)) == 51 for row in probe.control.tolist())
    for d_vocab, n_ctx in ((100, 50), (50, 64)):
        with pytest.raises(ValueError, match="period of 25"):
            probes.repeated(d_vocab, n_ctx, at=25)


@pytest.mark.parametrize("bos", [-1, 20])
def test_a_start_token_that_there_is_not(bos: int) -> None:
    with pytest.raises(ValueError, match=f"bos={bos} is no token of a vocabulary of d_vocab=20"):
        probes.repeated(20, 24, bos)


def test_predictable_losses_have_a_target_that_followed_before() -> None:
    probe = probes.repeated(100, 64)
    positions = range(*probe.predictable.indices(48))
    assert list(positions) == list(range(33, 48))
    assert probe.predictable == probes.predictable(16) and probe.second_copy == probes.second_copy(16)
    for row, back in zip(probe.tokens.tolist(), probe.periods.tolist(), strict=True):
        for j in positions:
            assert row[j + 1] == row[j - back + 1] and row[j] == row[j - back]
        assert all(row[j + 1] not in row[: j + 1] for j in range(*probes.new_tokens(16).indices(48)))


def test_probes_are_fixed_and_seeded() -> None:
    assert torch.equal(probes.repeated(100, 64).tokens, probes.repeated(100, 64).tokens)
    assert not torch.equal(probes.repeated(100, 64, seed=1).tokens, probes.repeated(100, 64, seed=2).tokens)
    assert not torch.equal(probes.repeated(100, 64).tokens[0], probes.repeated(100, 64).tokens[1])


@pytest.mark.parametrize(("d_vocab", "n_ctx"), [(100, 3), (2, 64)])
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


def test_the_losses_of_the_second_copy_and_of_what_is_new() -> None:
    """Tokens: BOS f a b c d g h i a b c d of block length 4, say; entry j predicts token j + 1."""
    new = [1.0, 2, 3, 1, 2, 3, 2]
    loss = torch.tensor([[9.0, *new, 50, 10, 20, 30], [9.0, *new, 70, 10, 20, 30]])
    assert probes.first_copy_loss(loss, 4) == 2
    assert probes.repeat_loss(loss, 4) == 20


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
    assert probes.standard_error(rows[:1]).isnan().all() and probes.standard_error(rows[:0]).isnan().all()
