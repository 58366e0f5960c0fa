"""A user's test of a verdict: its row by hand, beside ours that stay as they were, and a card that outlives it."""

from __future__ import annotations

import math
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
import torch

import tracer
from tests.ablate.test_verdict import CTX, VOCAB, induction_circuit
from tracer.ablate import HeadTest, verdict
from tracer.ablate.own_tests import OwnTest, own_test
from tracer.data import probes

HERE = __name__
TOKENS = probes.repeated(VOCAB, CTX).tokens


@tracer.head_test(label="One back", at_least=0.5, chance=0.2, text="How much goes to the token before")
def one_back(model: Any, tokens: Any, layer: int, head: int) -> Any:
    pattern = model.run_with_cache(tokens)[1]["pattern", layer][:, head]
    return pattern.diagonal(-1, dim1=-2, dim2=-1).mean(-1), pattern.diagonal(0, dim1=-2, dim2=-1).mean(-1)


@tracer.head_test(at_least=0.5)
def broken(model: Any, tokens: Any, layer: int, head: int) -> Any:
    raise KeyError("comma")


def asked(returned: Any, on: torch.Tensor = TOKENS, **said: Any) -> HeadTest:
    """The row of a test that returns this, whatever it is given."""

    def mine(*given: Any) -> Any:
        return returned

    all_said: dict[str, Any] = {"at_least": 0.5, **said}
    test: OwnTest = tracer.head_test(mine, **all_said)
    return own_test(test, induction_circuit(), (1, 0), on)


def test_a_row_by_hand_beside_ours() -> None:
    """L0H1 of the circuit looks one back and nowhere else; L0H0 looks everywhere alike."""
    model, n = induction_circuit(), TOKENS.shape[1]
    ours, found = verdict(model, 0, 1), verdict(model, 0, 1, tests=[one_back, f"{HERE}:broken"])
    assert found.tests[:6] == ours.tests and found.is_induction_head == ours.is_induction_head
    row, lost = found.tests[6:]
    assert (row.name, row.chance, row.passed, row.defines, row.code) == (
        "One back",
        0.2,
        True,
        False,
        f"{HERE}:one_back",
    )
    assert row.value == pytest.approx(1, abs=1e-9) and row.low == pytest.approx(1, abs=1e-9)
    start = 1 / n  # row 0 of the pattern can only see itself
    assert row.sentence == (
        f"How much goes to the token before. At least 0.5 is needed, with an interval above chance and above its "
        f"control, {start:.2f}. Measured by {HERE}:one_back."
    )
    assert (lost.name, lost.passed) == ("broken", None) and math.isnan(lost.value)
    assert lost.sentence == f"Not measured: {HERE}:broken raised KeyError: 'comma'."
    assert found.headline == f"{ours.headline}, and 1 of 1 that were added"
    uniform = verdict(model, 0, 0, tests=f"{HERE}:one_back").tests[6]
    expected = sum(1 / (query + 1) for query in range(1, n)) / (n - 1)
    assert uniform.value == pytest.approx(expected, abs=1e-12) and uniform.passed is False


def test_the_snippet_computes_the_card_again() -> None:
    card = verdict(induction_circuit(), 0, 1, sequences=4, tests=[one_back, f"{HERE}:broken"])
    assert card.snippet.endswith(
        f"print(verdict(model, 0, 1, sequences=4, tests=['{HERE}:one_back', '{HERE}:broken']))"
    )
    with redirect_stdout(StringIO()) as said:
        exec(card.snippet, {"model": induction_circuit()})
    assert said.getvalue() == f"{card}\n"


RISING = torch.arange(32, dtype=torch.float64) / 31
LOW = 0.5 - 2.039513446 * math.sqrt(2728 / 31) / 31 / math.sqrt(32)
"""Mean 0.5, squares about it 2728 / 31², Student's t of 31."""


@pytest.mark.parametrize(
    ("said", "control", "passed"),
    [
        ({}, None, True), ({"at_least": 0.501}, None, False), ({"chance": LOW - 1e-4}, None, True),
        ({"chance": LOW + 1e-4}, None, False), ({}, LOW - 1e-4, True), ({}, LOW + 1e-4, False),
        ({}, torch.full((32,), LOW - 1e-4), True), ({}, [LOW + 1e-4] * 32, False),
        ({"chance": 0.1}, LOW + 1e-4, False), ({"chance": LOW + 1e-4}, 0.0, False),
    ],
)  # fmt: skip
def test_it_passes_above_all_that_it_must_beat(said: dict[str, Any], control: Any, passed: bool) -> None:
    row = asked(RISING if control is None else (RISING, control), **said)
    assert row.passed is passed and row.value == pytest.approx(0.5, abs=1e-12)
    assert row.low == pytest.approx(LOW, abs=1e-9) and row.high == pytest.approx(1 - LOW, abs=1e-9)
    assert ("There is no control." in row.sentence) is (control is None) and "nan" not in str(row)
    assert row.chance == said["chance"] if "chance" in said else math.isnan(row.chance)


def test_rows_of_its_own() -> None:
    """It is called with the tokens that it names, and one number is expected for each of them."""
    seen = []

    @tracer.head_test(at_least=0.5, tokens=tracer.Probe([[1, 2, 3], [4, 5, 6]]))
    def mine(model: Any, tokens: Any, layer: int, head: int) -> Any:
        seen.append((tokens.tolist(), layer, head))
        tokens.zero_()
        return tokens[:, 0] + torch.tensor([0.5, 1.0])

    rows = [own_test(mine, induction_circuit(), (1, 0), TOKENS) for _ in range(2)]
    assert seen == [([[1, 2, 3], [4, 5, 6]], 1, 0)] * 2, "what a function does to its tokens is its own"
    assert [row.value for row in rows] == [0.75, 0.75] and rows[0].passed is True and rows[0].low < 0
