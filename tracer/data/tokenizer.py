"""Tokenizers: a byte-level BPE for text, whole words for random sources; token 0 starts every document and prompt."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, SupportsInt

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BOS = "<|bos|>"
BOS_ID = 0
SMALLEST_BPE = 257
"""256 bytes and the start token."""
MOST_GROWTH = 64
PIECE = 1 << 20
"""Characters encoded at once: the library needs about 100 bytes a token while it works."""


def train_bpe(documents: Iterable[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE (GPT-2's alphabet and word boundaries); every text can be encoded, nothing is unknown."""
    if vocab_size < SMALLEST_BPE:
        raise ValueError(f"vocab_size={vocab_size} is below {SMALLEST_BPE}: the 256 bytes and the start token")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def words(d_vocab: int, bos: int | None = BOS_ID) -> Tokenizer:
    """Tokens '<|bos|>', '1', '2', ... d_vocab - 1, apart by white space: random tokens that a person can type."""
    tokenizer = Tokenizer(models.WordLevel({BOS if i == bos else str(i): i for i in range(d_vocab)}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos is not None:
        tokenizer.add_special_tokens([BOS])
    return tokenizer


def refuse_growth(said: dict[str, Any]) -> None:
    """ValueError for a stranger's tokenizer.json whose rules could make a prompt over MOST_GROWTH times as long."""
    growth = 1.0
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        for rule in _rules(said.get(part)):
            growth *= _growth(rule)
    if growth > MOST_GROWTH:
        raise ValueError(f"its rules could make a text over {MOST_GROWTH} times as long: it is not read")


def _growth(rule: dict[str, Any]) -> float:
    """How many times as long a rule could make a text of 16 characters and more."""
    if rule.get("type") == "Prepend":
        return 1 + len(str(rule.get("prepend"))) / 16
    if rule.get("type") == "TemplateProcessing":
        sides = rule.get("single"), rule.get("pair")
        return float(max([1, *(len(side) for side in sides if isinstance(side, list))]))
    if rule.get("type") != "Replace":
        return 1.0
    pattern, new = rule.get("pattern"), len(str(rule.get("content")))
    if isinstance(pattern, dict) and (old := pattern.get("String")):
        return max(1.0, new / len(str(old)))
    return 1.0 + new  # an expression may match each character, and the nothing between two


def _rules(part: Any) -> Iterator[dict[str, Any]]:
    """A rule, and those that it is a sequence of."""
    ahead = [part]
    while ahead:
        match ahead.pop():
            case list() as several:
                ahead += several
            case dict() as rule:
                yield rule
                ahead += rule.values()


def ids_of(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text, none added, by a tokenizer (of `tokenizers` or `transformers`)."""
    with _panics_said():
        found = tokenizer.encode(text, add_special_tokens=False)
    return list(getattr(found, "ids", found))


def text_of(tokenizer: Any, ids: Sequence[int], **options: bool) -> str:
    """The text of tokens, by a tokenizer (of `tokenizers` or `transformers`)."""
    with _panics_said():
        return tokenizer.decode(ids, **options)


@contextmanager
def _panics_said() -> Iterator[None]:
    """A pattern that gives up, say, is a panic of the library's, which no `except Exception` sees."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the tokenizer gave up: {str(error)[:300]}") from error


def is_words(tokenizer: Tokenizer) -> bool:
    return isinstance(tokenizer.model, models.WordLevel)


def encode_stream(tokenizer: Tokenizer, documents: Sequence[str]) -> np.ndarray:
    """Token ids [pos] of all documents in a row, a start token before each."""
    dtype = np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32
    start = np.array([BOS_ID], dtype)
    stream: list[np.ndarray] = []
    waiting: list[tuple[str, bool]] = []
    size = 0

    def flush() -> None:
        encodings = tokenizer.encode_batch_fast([text for text, _ in waiting], add_special_tokens=False)
        for (_, first), encoding in zip(waiting, encodings, strict=True):
            stream.extend([start] * first)
            stream.append(np.array(encoding.ids, dtype))

    for document in documents:
        for at in range(0, len(document), PIECE):
            waiting.append((document[at : at + PIECE], at == 0))
            size += len(waiting[-1][0])
            if size >= PIECE:
                flush()
                waiting, size = [], 0
    flush()
    return np.concatenate([*stream, start[:0]])


def token_strings(tokenizer: Tokenizer, ids: Iterable[SupportsInt]) -> list[str]:
    """What each token says, one string per id: its true text, `\\xNN` for bytes of a broken character, <bos>."""
    byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
    return [_token_string(tokenizer, int(i), byte_level) for i in ids]


def _token_string(tokenizer: Tokenizer, token: int, byte_level: bool) -> str:
    piece = tokenizer.id_to_token(token) if token >= 0 else None
    if piece is None:
        raise ValueError(f"token {token} is not in the vocabulary: ids go from 0 to {tokenizer.get_vocab_size() - 1}")
    if piece == BOS:
        return "<bos>"
    table = _byte_of()
    if not byte_level or not set(piece) <= table.keys():
        return piece
    return bytes(table[character] for character in piece).decode("utf-8", errors="backslashreplace")


@functools.cache
def _byte_of() -> dict[str, int]:
    """The byte that each character of the byte-level alphabet stands for (GPT-2's bytes_to_unicode, inverted)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
