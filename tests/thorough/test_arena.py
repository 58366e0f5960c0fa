"""Every block of docs/arena.md runs, on models that others wrote; the templates are pairs, token by token."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import tracer
from tracer.data import templates

PAGE = (Path(__file__).parents[2] / "docs" / "arena.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
ALL = {"ioi": templates.ioi, "greater_than": templates.greater_than, "docstring": templates.docstring}


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    """Byte-level, each word with the space before it one token, as those of GPT-2 mostly are."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    texts = [text for make in ALL.values() for text in (*make(400).clean, *make(400).corrupted)]
    texts += [f"{year}" for year in range(100)] * 3
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(texts, trainer)
    return made


def test_every_exercise_runs(words: Tokenizer) -> None:
    torch.manual_seed(0)
    size = words.get_vocab_size()
    config = GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=48, vocab_size=size, bos_token_id=0, eos_token_id=0)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>")
    model = tracer.load_hf(GPT2LMHeadModel(config).eval().requires_grad_(False), tokenizer=tokenizer)
    names: dict[str, Any] = {"tracer": tracer, "model": model}
    assert len(BLOCKS) == 13
    for block in BLOCKS:
        exec(compile(block, "docs/arena.md", "exec"), names)


@pytest.mark.parametrize("name", ALL)
def test_templates_differ_where_the_answer_is_decided(name: str, words: Tokenizer) -> None:
    pairs = ALL[name](12, seed=3)
    assert pairs == ALL[name](12, seed=3) != ALL[name](12, seed=4)
    for clean, corrupted, right, wrong in zip(pairs.clean, pairs.corrupted, pairs.right, pairs.wrong, strict=True):
        assert clean != corrupted and right != wrong
        apart = [i for i, (a, b) in enumerate(zip(clean.split(), corrupted.split(), strict=True)) if a != b]
        assert len(apart) == 1
    with pytest.raises(ValueError, match="n=0"):
        ALL[name](0)


def test_tokens_are_those_of_the_prompts(words: Tokenizer) -> None:
    pairs = templates.ioi(6)
    found = pairs.tokens(words, 0)
    assert found.clean.shape == found.corrupted.shape and (found.clean[:, 0] == 0).all()
    assert [words.decode(row[1:]) for row in found.clean.tolist()] == pairs.clean
    assert [words.decode([token]) for token in found.right.tolist()] == pairs.right
    one = templates.Pairs(["a b"], ["a b c d e f"], [" x"], [" y"])
    with pytest.raises(ValueError, match="positions would not correspond|not all words of the template are one token"):
        one.tokens(words)
