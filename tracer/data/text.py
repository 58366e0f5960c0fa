"""Tokenised text: documents -> split -> BPE -> streams of token ids, made once and kept in the cache."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Integer
from tokenizers import Tokenizer

from tracer.config import DataConfig
from tracer.data import cache, corpora
from tracer.data.prompts import readable_passage
from tracer.data.split import digest, split
from tracer.data.tokenizer import encode_stream, train_bpe

FORMAT = 1
"""Goes up when the same text and settings give other tokens."""


@dataclass(frozen=True)
class Tokenised:
    """A corpus as the model sees it."""

    tokenizer: Tokenizer
    train: Integer[np.ndarray, " train_pos"]
    held: Integer[np.ndarray, " held_pos"]
    passage: str
    """Readable held-out text."""
    hash: str
    """sha256 of the corpus and of every setting that decides the tokens."""


def tokenised(config: DataConfig) -> Tokenised:
    """config.corpus, its tokenizer trained on the training split only."""
    documents = corpora.documents(config.corpus, config.text_field, config.max_mb)
    entry = cache.key(
        format=FORMAT, corpus=_corpus_hash(documents), vocab_size=config.vocab_size, val_share=config.val_share
    )
    if found := cache.load(entry):
        return _open(found, entry)
    train, held = split(documents, config.val_share)
    tokenizer = train_bpe(train, config.vocab_size)
    made = Tokenised(
        tokenizer, encode_stream(tokenizer, train), encode_stream(tokenizer, held), readable_passage(held), entry
    )
    files = {"train.npy": _npy(made.train), "held.npy": _npy(made.held)}
    cache.save(entry, {"tokenizer.json": tokenizer.to_str().encode(), "passage.txt": made.passage.encode(), **files})
    return made


def mixed_in(config: DataConfig, main: Tokenised) -> tuple[Integer[np.ndarray, " pos"], str]:
    """(token ids, hash) of config.mix's training split in main's tokens, less the documents that main holds out."""
    assert config.mix
    documents = corpora.documents(config.mix, config.text_field, config.max_mb)
    entry = cache.key(mix=_corpus_hash(documents), main=main.hash)
    if found := cache.load(entry):
        return np.load(found / "train.npy", mmap_mode="r"), entry
    main_documents = corpora.documents(config.corpus, config.text_field, config.max_mb)
    held = {digest(document) for document in split(main_documents, config.val_share)[1]}
    train = [document for document in split(documents, config.val_share)[0] if digest(document) not in held]
    stream = encode_stream(main.tokenizer, train)
    cache.save(entry, {"train.npy": _npy(stream)})
    return stream, entry


def _open(folder: Path, entry: str) -> Tokenised:
    train, held = (np.load(folder / name, mmap_mode="r") for name in ("train.npy", "held.npy"))
    passage = (folder / "passage.txt").read_bytes().decode()
    return Tokenised(Tokenizer.from_file(str(folder / "tokenizer.json")), train, held, passage, entry)


def _corpus_hash(documents: list[str]) -> str:
    return hashlib.sha256(b"".join(map(digest, documents))).hexdigest()


def _npy(stream: Integer[np.ndarray, " stream_pos"]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, stream, allow_pickle=False)
    return buffer.getvalue()
