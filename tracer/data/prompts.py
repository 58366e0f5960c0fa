"""Prompts: from what a person typed to tokens, and a readable held-out passage to start from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenizers import Tokenizer

from tracer.config.field_docs import fields_in_help
from tracer.data.tokenizer import BOS, BOS_ID, ids_of, is_words, text_of, token_strings

PASSAGE_CHARS = 600
CANDIDATES = 2000


@fields_in_help
@dataclass(frozen=True)
class Encoded:
    """A prompt that fits the context, the start token included."""

    tokens: list[int]
    """Numbers, the start token among them."""
    strings: list[str]
    """What each token says, in the same order."""
    n_dropped: int = 0
    """Tokens cut from the end."""


class PromptTooLong(ValueError):
    """A prompt of more tokens than the context holds."""

    def __init__(self, n_tokens: int, n_ctx: int) -> None:
        super().__init__(
            f"the prompt has {n_tokens} tokens with the start token and the context holds {n_ctx}: "
            f"shorten it, or cut the last {n_tokens - n_ctx}"
        )
        self.n_tokens = n_tokens
        self.n_ctx = n_ctx


def encode_prompt(
    tokenizer: Tokenizer, text: str, n_ctx: int, bos: int | None = BOS_ID, *, cut: bool = False
) -> Encoded:
    """The start token (None: nothing) and the tokens of a text; with `cut`, the first n_ctx of them."""
    if is_words(tokenizer):
        text = _known_words(tokenizer, text)
    ids = ids_of(tokenizer, text)
    if not ids:
        raise ValueError("the prompt is empty: type at least one token")
    if bos is not None and ids[0] != bos:
        ids = [bos, *ids]
    if len(ids) > n_ctx and not cut:
        raise PromptTooLong(len(ids), n_ctx)
    kept = ids[:n_ctx]
    return Encoded(kept, token_strings(tokenizer, kept), len(ids) - len(kept))


def _known_words(tokenizer: Tokenizer, text: str) -> str:
    typed = text.replace(BOS, f" {BOS} ").split()
    unknown = [repr(word) for word in typed if tokenizer.token_to_id(word) is None]
    if unknown:
        bos, size = tokenizer.token_to_id(BOS), tokenizer.get_vocab_size()
        first, *_, last = (tokenizer.id_to_token(i) for i in range(size) if i != bos)
        numbers = "the numbers " * (last == str(size - 1))
        raise ValueError(
            f"not in the vocabulary: {', '.join(unknown[:5])}; this model's words are {numbers}{first} to {last}, "
            f"apart by spaces{f', and {BOS}' * (bos is not None)}"
        )
    return " ".join(typed)


def readable_passage(documents: list[str]) -> str:
    """The paragraph with the largest share of letters and single spaces: prose, where there is any."""
    paragraphs = [p for d in documents for p in re.split(r"\n\s*\n", d.strip()) if len(p) >= 120]
    candidates = paragraphs[:: len(paragraphs) // CANDIDATES + 1]
    best = max(candidates, key=_readability, default=max(documents, key=len))
    return best.strip()[:PASSAGE_CHARS]


def _readability(paragraph: str) -> float:
    start = paragraph[:120]
    return len(re.findall(r"[^\W\d_]| (?! )", start)) / len(start)


def shorten(tokenizer: Tokenizer, passage: str, n_tokens: int) -> str:
    """The first n_tokens of a passage, back to the end of a word where there is one."""
    ids = ids_of(tokenizer, passage)
    if len(ids) <= n_tokens:
        return passage
    text = text_of(tokenizer, ids[:n_tokens]).rstrip("\N{REPLACEMENT CHARACTER}")
    return re.sub(r"\s+\S*$", "", text) or text
