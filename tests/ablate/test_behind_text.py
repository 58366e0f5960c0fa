"""Prefix matching behind filler: the rows read token by token, and heads by hand that reach every place or some."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.ablate.test_verdict import CTX, VOCAB, induction_circuit
from tracer.ablate import behind_text, verdict
from tracer.ablate.behind_text import behind_filler, behind_other_text
from tracer.ablate.repeats import Repeats
from tracer.data.probes import repeated
from tracer.model import Transformer

ROWS = Repeats(repeated(VOCAB, CTX).tokens)
WORDS = torch.arange(1, VOCAB)
BLOCK, PERIOD, AMOUNTS = 4, 8, [0, 5, 9, 14]
"""Of 26 words: a third of them between the copies at least, half of that a block, and 14 words that are left."""


def early(places: int) -> Transformer:
    """The circuit, whose head of the first layer finds the token before at that many places and looks everywhere alike
    from there on."""
    model = induction_circuit()
    model.blocks[0].attn.W_Q[1, 27 + places : 27 + CTX] = 0
    return model


def matching_by_hand(row: list[int], begins: int, period: int, places: int) -> float:
    """Of L1H0 of `early`, mean over the queries of the second block."""
    sharp, found = 200 / math.sqrt(51), []
    for query in range(begins + period, begins + period + BLOCK):
        scores = []
        for key in range(query + 1):
            if key < places:
                said = float(key > 0 and row[key - 1] == row[query])
            else:
                said = row[: key + 1].count(row[query]) / (key + 1)
            scores.append(sharp * said)
        weights = np.exp(np.array(scores) - max(scores))
        found.append(weights[query - period + 1] / weights.sum())
    return float(np.mean(found))


def test_rows_differ_in_what_stands_in_front() -> None:
    rows = behind_filler(WORDS, 0, CTX, 5)
    assert list(rows) == AMOUNTS
    for amount, tokens in rows.items():
        for none, row, gap in zip(rows[0].tolist(), tokens.tolist(), (4, 5, 6, 7, 8), strict=True):
            first, second = 1 + amount, 1 + amount + BLOCK + gap
            assert row[0] == 0 and row[first : first + BLOCK] == row[second : second + BLOCK] == none[1 : 1 + BLOCK]
            assert row[first : second + BLOCK] == none[1 : 1 + 2 * BLOCK + gap]
            others = row[:second] + row[second + BLOCK :]
            assert len(row) == len(none) + amount and len(set(others)) == len(others) == len(row) - BLOCK
    again = behind_filler(WORDS, 0, CTX, 5)
    assert all(torch.equal(rows[amount], again[amount]) for amount in AMOUNTS)


def test_a_head_that_matches_anywhere_passes() -> None:
    found = behind_other_text(induction_circuit(), ROWS, (1, 0))
    assert found.passed is True and found.value == pytest.approx(1, abs=1e-6) and not found.defines
    assert "with 0, 5, 9 and 14 unrelated tokens before the first copy: 1.00, 1.00, 1.00 and 1.00;" in found.sentence
    assert "100%, 100%, 100% and 100% of the copied tokens right. Places from 31 on were not tried." in found.sentence


def test_a_head_that_matches_near_the_start_only_fails_and_stays_an_induction_head() -> None:
    """Its keys know the token before at places 0 to 11: of a block behind 9 tokens one of four, behind 14 none."""
    card = verdict(early(12), 1, 0)
    found, rows = card.tests[5], behind_filler(WORDS, 0, CTX, 32)
    periods = PERIOD + np.linspace(0, BLOCK, 32).round().astype(int)
    by_hand = {
        amount: [
            matching_by_hand(row, 1 + amount, int(p), 12) for row, p in zip(rows[amount].tolist(), periods, strict=True)
        ]
        for amount in AMOUNTS
    }
    values = np.array(by_hand[14])
    half = 2.039513446 * values.std(ddof=1) / math.sqrt(32)  # Student's t of 31
    assert found.passed is False and found.value == pytest.approx(values.mean(), abs=1e-9)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=1e-9)
    said = [f"{np.mean(one):.2f}" for one in by_hand.values()]
    assert said[:2] == ["1.00", "1.00"] and 0.2 < float(said[2]) < 0.4
    assert f"before the first copy: {', '.join(said[:3])} and {said[3]}; 0.4 is needed behind each" in found.sentence
    assert card.is_induction_head and card.headline.split(" is ")[1] == (
        "an induction head, but not behind other text: 5 of 6 tests passed"
    )


def test_where_nothing_is_matched_there_is_nothing_to_look_for() -> None:
    found = behind_other_text(induction_circuit(), ROWS, (1, 1))
    assert found.passed is False and math.isnan(found.value) and "with nothing in front, 0.0" in found.sentence


@pytest.mark.parametrize(
    ("rows", "said"),
    [(repeated(12, CTX).tokens, "a context of 51 tokens and 12 different ones"), (ROWS.tokens[:1], "one sequence")],
)
def test_rows_that_say_nothing_are_not_measured(rows: torch.Tensor, said: str) -> None:
    found = behind_other_text(induction_circuit(), Repeats(rows), (1, 0))
    assert found.passed is None and found.sentence.startswith(f"Not measured: {said}")


def test_a_batch_read_in_parts_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = behind_other_text(early(12), ROWS, (1, 0))
    monkeypatch.setattr(behind_text, "AT_ONCE", 5 * 31 * VOCAB)
    assert behind_other_text(early(12), ROWS, (1, 0)) == whole


def test_every_amount_must_be_matched() -> None:
    """Keys at 7 to 10, those of a block behind 5 tokens, do not know the token before; those of the others do."""
    model = induction_circuit()
    model.blocks[0].attn.W_Q[1, 27 + 7 : 27 + 11] = 0
    found = behind_other_text(model, ROWS, (1, 0))
    assert f"first copy: 1.00, {found.value:.2f}, 1.00 and 1.00; 0.4 is needed behind each." in found.sentence
    assert 0.2 < found.value < 0.3 and found.passed is False
