"""What a person types as tokens, what tokens say, and the text that a page begins with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dashboard.loading import prompt_tokens
from tests.dashboard.questions.conftest import Write
from tracer.analysis.run_prompts import REPEATS
from tracer.data import PromptTooLong
from tracer.data.tokenizer import train_bpe
from tracer.store import NotARun, Run

LINE = "def f(x):\n    return x\n"


def speaking(write: Write, name: str, *given: Any, **meta: Any) -> Run:
    """A run with a tokenizer of 257 tokens: bytes, and one that begins a text."""
    run = write(name, *given, **meta)
    words = train_bpe([LINE] * 9, 257)
    (run.dir / "tokenizer.json").write_text(words.to_str())
    return Run(run.dir)


def prompts(*rows: list[int]) -> tuple[Any, ...]:
    """A recorded step, and the tokens of the prompts that were kept."""
    coords = {"prompt_tokens": (("prompt", "query_pos"), np.array(rows, np.int64), {})}
    return [0], {"x": ((), np.zeros(1))}, coords


KEPT = prompts([7, 0, 3, 7, 5, 6, 2, -1], [9] * 8)
NOTHING = [0], {"x": ((), np.zeros(1))}


@pytest.mark.parametrize(
    ("given", "meta", "text"),
    [
        (KEPT, {"bos": 7, "d_vocab": 9}, "0 3 5 6 2"),
        (KEPT, {"d_vocab": 9, "corpus": {"name": "python-stdlib 3.11"}}, "7 0 3 7 5 6 2"),
        (KEPT, {"bos": 7, "n_ctx": 5}, "0 3 5 6"),
        (NOTHING, {"bos": 1, "d_vocab": 10}, "0 2 3 4 0 2 3 4"),
        (NOTHING, {"d_vocab": 3}, "0 1 2 0 1 2"),
        (NOTHING, {}, "0 1 2 3 0 1 2 3"),
        (NOTHING, {"n_ctx": 4}, "0 1 2"),
    ],
)
def test_a_run_without_a_tokenizer_begins_with_numbers(write: Write, given: Any, meta: Any, text: str) -> None:
    assert prompt_tokens.example(write("numbers", *given, **meta)) == text


def test_a_run_with_one_begins_with_its_own_prompt_or_a_repeat(write: Write) -> None:
    ids = train_bpe([LINE] * 9, 257).encode("if x").ids
    own = prompts([0, *ids])
    assert prompt_tokens.example(speaking(write, "own", *own, bos=0)) == "if x"
    python = {"name": "python-stdlib 3.11"}
    assert prompt_tokens.example(speaking(write, "python", *own, bos=0, corpus=python)) == REPEATS[0]
    assert prompt_tokens.example(speaking(write, "none kept", *NOTHING, bos=0)) == REPEATS[0]
    for n_ctx, text in (
        (len(REPEATS[0]) + 1, REPEATS[0]),
        (len(REPEATS[0]), REPEATS[1]),
        (10, REPEATS[2]),
        (9, REPEATS[3]),
    ):
        assert prompt_tokens.example(speaking(write, f"context {n_ctx}", *NOTHING, bos=0, n_ctx=n_ctx)) == text
    assert prompt_tokens.example(speaking(write, "short", *NOTHING, bos=0, n_ctx=2)) == REPEATS[3], "it is cut there"
    assert prompt_tokens.example(speaking(write, "silent", *prompts([0, 0]))) == REPEATS[3], "its prompt has no words"


def test_a_tokenizer_that_should_be_there(write: Write, copy_run: Any) -> None:
    assert prompt_tokens.tokenizer(write("foreign")) is None
    run = copy_run("wordless")
    (run.dir / "tokenizer.json").unlink()
    with pytest.raises(NotARun, match="tokenizer"):
        prompt_tokens.tokenizer(run)


def test_what_tokens_say(write: Write) -> None:
    run = speaking(write, "said")
    vocabulary = train_bpe([LINE] * 9, 257)
    size, x = vocabulary.get_vocab_size(), vocabulary.encode("x").ids[0]
    assert prompt_tokens.strings(run, [x, size, x, size - 1, 999])[:3] == ["x", str(size), "x"]
    assert prompt_tokens.strings(run, [size - 1]) != [str(size - 1)] and prompt_tokens.strings(run, [999]) == ["999"]
    assert prompt_tokens.strings(run, [0]) == ["<bos>"]
    assert prompt_tokens.strings(write("numbered"), [0, 7]) == ["0", "7"]


def test_words_are_encoded_as_the_model_takes_them(write: Write) -> None:
    run = speaking(write, "encoded", bos=0, n_ctx=6)
    found = prompt_tokens.encode(run, "x = x")
    assert found.tokens[0] == 0 and len(found.tokens) == 6
    for most, text in ((None, "x = xy"), (3, "x =")):
        with pytest.raises(PromptTooLong):
            prompt_tokens.encode(run, text, most)
    assert prompt_tokens.encode(run, "x =", 3, cut=True).tokens == found.tokens[:3]


def numbers(write: Write, text: str, most: int | None = None, cut: bool = False, **meta: Any) -> tuple[list[int], int]:
    """The tokens, and how many were left out."""
    found = prompt_tokens.encode(write(f"{text} {most} {cut} {meta}", **meta), text, most, cut=cut)
    assert found.strings == [str(token) for token in found.tokens]
    return found.tokens, found.n_dropped


def test_numbers_are_tokens(write: Write) -> None:
    assert numbers(write, "3, 1 9", d_vocab=10) == ([3, 1, 9], 0)
    assert numbers(write, "3 1", bos=1) == ([1, 3, 1], 0)
    assert numbers(write, "1 3", bos=1) == ([1, 3], 0)
    assert numbers(write, "1 2 3", n_ctx=3) == ([1, 2, 3], 0)
    assert numbers(write, "1 2 3 4", 2, cut=True, n_ctx=3) == ([1, 2], 2)
    assert numbers(write, "1 2", 5, cut=True, n_ctx=3) == ([1, 2], 0)
    assert numbers(write, str(2**31 - 1)) == ([2**31 - 1], 0)
    refused: list[tuple[str, int | None, dict[str, Any]]] = [
        ("1 2 3 4", None, {"n_ctx": 3}), ("1 2 3", 2, {"n_ctx": 3}), ("2", 1, {"bos": 5}),
    ]  # fmt: skip
    for text, most, meta in refused:
        with pytest.raises(PromptTooLong):
            numbers(write, text, most, **meta)


@pytest.mark.parametrize(
    ("text", "d_vocab", "said"),
    [
        ("10", 10, "'10': this run has no tokenizer, .* numbers from 0 to 9"),
        ("9 x ٣ -1 2.5", 10, "'x', '٣', '-1', '2.5': this run"),
        (str(2**31), None, f"'{2**31}': this run"),
        (" , ", 10, "the prompt is empty"),
    ],
)
def test_what_is_no_token(write: Write, text: str, d_vocab: int | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        prompt_tokens.encode(write("refused", d_vocab=d_vocab), text)
