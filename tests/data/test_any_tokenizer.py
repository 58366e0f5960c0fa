"""The text of a token, from whatever somebody has as a tokenizer."""

from typing import Any

import pytest
from tokenizers import Tokenizer, models

from tracer.data.any_tokenizer import Words

LETTERS = {0: "a", 1: "b", 4: "c", 5: "d"}
"""Ids 2 and 3 are nobody's, and 4 and 5 not below their number."""

TOKENIZERS: dict[str, Any] = {
    "tokenizers": Tokenizer(models.WordLevel({text: i for i, text in LETTERS.items()}, unk_token="a")),
    "LookupError": lambda ids: "".join(LETTERS[i] for i in ids),
    "TypeError": lambda ids: "".join(LETTERS.get(i) for i in ids),  # pyrefly: ignore[no-matching-overload]
    "AttributeError": lambda ids: LETTERS.get(ids[0]).lower(),  # pyrefly: ignore[missing-attribute]
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_id_that_a_tokenizer_does_not_know_is_its_number(name: str) -> None:
    assert Words(TOKENIZERS[name]).strings(range(8)) == ["a", "b", "2", "3", "c", "d", "6", "7"]


def test_without_a_tokenizer_every_id_is_its_number() -> None:
    assert Words().strings([3, 0]) == ["3", "0"]
