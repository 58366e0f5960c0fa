"""Data of one's own: what is refused, in words that name the function, and what a source may leave out."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from tests.own_data import Addition, named_here_alone  # noqa: F401 (a fixture)
from tracer import data
from tracer.config import WIDEST, DataConfig
from tracer.data import own_source
from tracer.data.tokenizer import words
from tracer.named_code import note_named

pytestmark = pytest.mark.usefixtures("named_here_alone")
N_CTX = 4


def build(**changes: Any) -> data.Data:
    """Of modular addition with these attributes in place of its own."""

    def changed(n_ctx: int, seed: int) -> Addition:
        made = Addition(n_ctx, seed)
        vars(made).update(changes)
        return made

    return data.build(DataConfig(corpus=note_named(changed, "data.corpus")), N_CTX, seed=0)


DICE = np.random.default_rng(7)
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"rows": lambda rng, n: np.zeros((n, 4), int)}, "rows must give whole numbers .* = [8, 5], not int64 [8, 4]"),
    ({"rows": lambda rng, n: np.zeros((n, 5))}, "rows must give whole numbers .* not float64 [8, 5]"),
    ({"rows": lambda rng, n: np.full((n, 5), 15)}, "rows gave ids from 15 to 15, and d_vocab=15 has .* 0 to 14"),
    ({"rows": lambda rng, n: np.full((n, 5), -1)}, "rows gave ids from -1 to -1"),
    ({"rows": lambda rng, n: DICE.integers(0, 9, (n, 5))}, "rows gave other rows for the same rng"),
    ({"rows": lambda rng: rng}, "rows raised TypeError"),
    ({"held_out": lambda n: DICE.integers(0, 9, (n, 5))}, "held_out gave other rows the second time"),
    ({"held_out": lambda n: np.zeros((1, 5), int)}, "held_out must give whole numbers"),
    ({"d_vocab": 2}, "d_vocab=2 must be a whole number from 3"),
    ({"d_vocab": 15.0}, "d_vocab=15.0 must be a whole number"),
    ({"bos": 15}, "bos=15 is no token of d_vocab=15"),
    ({"n_train_rows": 8.0}, "n_train_rows=8.0 must be a whole number above 0"),
    ({"loss_mask": lambda rows: rows == 1}, "loss_mask must give booleans [n, n_ctx] = [8, 4], not bool [8, 5]"),
    ({"loss_mask": lambda rows: rows[:, 1:]}, "loss_mask must give booleans .* not int64"),
    ({"loss_mask": lambda rows: rows[:, 1:] < 0}, "loss_mask counts no target of 8 rows"),
    ({"loss_mask": lambda rows: DICE.random((len(rows), 4)) < 0.5}, "loss_mask gave another mask for the same rows"),
    ({"tokenizer": words(16)}, "tokenizer has 16 tokens, and d_vocab=15"),
    ({"tokenizer": str}, "tokenizer is a type, neither of"),
    ({"references": {"bigram": float("nan")}}, "references: bigram=nan is no finite loss in nats"),
    ({"references": {"": 1.0}}, "references: '' is no name"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "why"), BROKEN, ids=[why[:24] for _, why in BROKEN])
def test_what_cannot_be_trained_on_is_refused_by_the_functions_name(changes: dict[str, Any], why: str) -> None:
    why = re.escape(why).replace(r"\.\*", ".*")
    with pytest.raises(ValueError, match=rf"^data.corpus={__name__}:build\.<locals>\.changed: {why}"):
        build(**changes)


@pytest.mark.parametrize(
    ("make", "why"),
    [(lambda n_ctx, seed: 3, "returned an int without rows, held_out, d_vocab"),
     (lambda n_ctx: 3, "called with n_ctx=4 and seed=0 it raised TypeError")],
)  # fmt: skip
def test_what_makes_no_source(make: Callable[..., Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        data.build(DataConfig(corpus=note_named(make, "data.corpus")), N_CTX, seed=0)


def test_a_source_as_it_stands() -> None:
    found = build(held_out=lambda n: np.tile(np.array([3, 13, 5, 14, 8], np.int8), (n, 1)))
    assert found.d_vocab == 15 and found.bos is None and found.n_train_tokens == 84 * N_CTX
    assert found.prompt == "3 13" and found.train(3, 6).shape == (6, 5) and str(found.val(2).dtype) == "torch.int64"
    assert data.token_strings(found.tokenizer, range(3)) == ["0", "1", "2"]
    with pytest.raises(ValueError, match="this model's words are the numbers 0 to 14, apart by spaces$"):
        data.encode_prompt(found.tokenizer, "3 + 5", N_CTX, found.bos)
    assert data.encode_prompt(found.tokenizer, "3 13 5", N_CTX, found.bos).tokens == [3, 13, 5]


def test_a_vocabulary_may_be_as_wide_as_a_models() -> None:
    def source(d_vocab: int) -> SimpleNamespace:
        return SimpleNamespace(rows=None, held_out=None, d_vocab=d_vocab)

    widest = WIDEST["d_vocab"]
    assert [own_source._d_vocab("a:b", source(n)) for n in (3, widest)] == [3, widest]
    with pytest.raises(ValueError, match=rf"d_vocab={widest + 1} must be a whole number from 3 to {widest:,}"):
        own_source._d_vocab("a:b", source(widest + 1))


def test_with_a_start_token_it_stands_in_front_of_prompts() -> None:
    found = build(bos=14, held_out=lambda n: np.tile([14, 3, 13, 5, 8], (n, 1)))
    assert found.prompt == "3 13" and data.encode_prompt(found.tokenizer, "3", N_CTX, found.bos).tokens == [14, 3]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_tokenizer_of_ones_own(wrapped: bool) -> None:
    own = Tokenizer.from_str(words(15, None).to_str().replace('"13":13', '"+":13'))
    found = build(tokenizer=PreTrainedTokenizerFast(tokenizer_object=own) if wrapped else own)
    assert data.encode_prompt(found.tokenizer, "3 + 5", N_CTX, found.bos).tokens == [3, 13, 5]


def test_the_hash_is_of_the_rows_or_as_the_source_says() -> None:
    same, again, other = build(), build(), build(held_out=lambda n: np.tile([1, 13, 1, 14, 2], (n, 1)))
    unmasked = build(loss_mask=None)
    assert same.hash == again.hash and len({same.hash, other.hash, unmasked.hash}) == 3
    assert build(hash="mine").hash == "mine"


def test_it_is_not_mixed() -> None:
    for corpus, mix in (("a:f", "markov"), ("markov", "a:f")):
        with pytest.raises(ValueError, match="'a:f' is a function of your own, which is not mixed"):
            DataConfig(corpus=corpus, mix=mix, mix_share=0.5)


def test_a_dataset_of_the_hub_and_paths_are_no_code() -> None:
    assert [DataConfig(corpus=one).is_own for one in ("a.b:c.d", "hf:name", "hf:a:b", "./a:b", "a/b", "markov")] == [
        True, False, False, False, False, False,
    ]  # fmt: skip
