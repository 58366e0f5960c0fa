"""What a user's test may not be, and what it returns that cannot be used: said in words, with its name."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch

import tracer
from tests.ablate.test_own_tests import HERE, TOKENS, asked, broken, one_back
from tests.ablate.test_verdict import induction_circuit
from tracer.ablate import verdict
from tracer.ablate.own_tests import given_tests, own_test


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (None, "returned nothing, and no numbers"),
        (torch.zeros(32, 25), r"returned numbers \[32, 25\], and not one number a sequence, here \[32\]"),
        (0.5, r"returned one number, and not one number a sequence, here \[32\]"),
        (torch.full((32,), torch.nan), "returned 32 of 32 numbers that are not finite"),
        ([0.5] * 31 + [float("inf")], "returned 1 of 32 numbers that are not finite"),
        ([object()] * 32, "returned a list, and no numbers"),
        ((torch.zeros(32), torch.zeros(31)), r"returned a control of numbers \[31\], and not one number, or one a seq"),
        ((torch.zeros(32), float("nan")), "returned 1 of 1 numbers that are not finite"),
    ],
)
def test_what_cannot_be_used_is_said_in_the_row(returned: Any, why: str) -> None:
    row = asked(returned)
    assert row.passed is None and row.code
    assert re.match(rf"Not measured: \S+mine {why}", row.sentence), row.sentence


def test_one_sequence_and_tokens_that_the_model_has_not_are_said() -> None:
    assert "was asked on one sequence, which has no interval" in asked([0.5], TOKENS[:1]).sentence
    other = asked([0.5, 0.5], tokens=[[1, 99], [2, 3]])
    assert other.passed is None and "cannot be asked, as the probe of 'mine' has token 99" in other.sentence


def test_nothing_measured_ends_no_card_and_long_words_are_cut() -> None:
    @tracer.head_test(at_least=0.5)
    def long(*given: Any) -> Any:
        raise RuntimeError("word " * 1000)

    card = verdict(induction_circuit(), 1, 0, sequences=4, tests=[broken, long])
    assert card.headline.endswith("6 of 6 tests passed, none of those added could be measured")
    assert len(card.tests[-1].sentence) <= 301 and card.is_induction_head and card.passed == 6
    assert card.snippet.endswith(f"tests=['{HERE}:broken', long]))"), "no module has it: a variable of the reader's"


def test_dice_are_the_same_each_time_and_put_back() -> None:
    @tracer.head_test(at_least=0.1)
    def rolled(model: Any, tokens: Any, layer: int, head: int) -> Any:
        return torch.rand(len(tokens))

    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    values = [own_test(rolled, induction_circuit(), (0, 0), TOKENS).value for _ in range(2)]
    assert values[0] == values[1] and torch.equal(state, torch.random.get_rng_state())


def mine(*given: Any) -> Any: ...


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "at_least=None: say which mean passes it"), ({"at_least": float("nan")}, "at_least=nan: say which mean"),
        ({"at_least": 0.1, "chance": 0.4}, "at_least=0.1 is not above chance=0.4"),
        ({"at_least": 0.1, "chance": float("inf")}, "chance=inf is no number"),
        ({"at_least": 0.1, "label": "Copying"}, "'Copying' is the name of one of ours"),
        ({"at_least": 0.1, "label": "a\nb"}, "is no name for a row"),
        ({"at_least": 0.1, "tokens": [1, 2]}, r"tokens of a probe are whole numbers \[batch pos\]"),
    ],
)  # fmt: skip
def test_what_makes_no_row_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        tracer.head_test(mine, **said)


def test_what_has_no_name_is_refused() -> None:
    for function in (lambda *given: None, partial(mine)):
        with pytest.raises(ValueError, match="has no name by which it could be asked for again: write a function"):
            tracer.head_test(function, at_least=0.5)


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ([mine], "tests=.*:mine: make it with tracer.head_test"), ("math:pi", "tests=math:pi: make it with"),
        (["math:nothing"], "math has no nothing"), ([one_back, one_back], "two are called 'One back'"),
        (5, "tests=5: make each with tracer.head_test, or name it as module:name"),
    ],
)  # fmt: skip
def test_what_is_no_test_is_refused(tests: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        given_tests(tests)


SEVERAL = [one_back, broken]


def test_one_name_may_hold_several() -> None:
    assert given_tests(f"{__name__}:SEVERAL") == (one_back, broken)
