"""Data of one's own: the source that somebody's function of (n_ctx, seed) makes, checked before it is trained on.

It runs only where a person has named it in this process (`tracer.named_code.note_named`): on a command line, in a
file of settings or in Python. A configuration is not enough, as it may be a run directory's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool
from tokenizers import Tokenizer

from tracer.config import WIDEST
from tracer.data import cache
from tracer.data.sources import Rows, RowSource
from tracer.data.tokenizer import words
from tracer.named_code import NAMED, kind_of, why_no_corpus

Make = Callable[[int, int], RowSource]
"""A function of (n_ctx, seed)."""
CHECKED, DIGESTED = 8, 64
"""Rows that are asked for twice, and those whose digest tells one data set from another."""
MOST_REFERENCES, LONGEST_REFERENCE, LONGEST_HASH = 32, 60, 200
"""As the schema of run.json bounds them."""


@dataclass(frozen=True)
class OwnSource:
    """Somebody's source as a `RowSource`: every row that it gives is checked, and is int64."""

    name: str
    source: Any
    n_ctx: int
    d_vocab: int

    def rows(self, rng: np.random.Generator, n: int) -> Rows:
        return self._rows("rows", n, self._ask("rows", rng, n))

    def held_out(self, n: int) -> Rows:
        return self._rows("held_out", n, self._ask("held_out", n))

    @property
    def has_mask(self) -> bool:
        return getattr(self.source, "loss_mask", None) is not None

    def loss_mask(self, rows: Rows) -> Bool[np.ndarray, "batch loss_pos"]:
        """True where a target counts: entry j is token j + 1. ValueError where none does."""
        wanted, mask = (len(rows), self.n_ctx), np.asarray(self._ask("loss_mask", rows))
        if mask.dtype != bool or mask.shape != wanted:
            raise self.wrong(f"loss_mask must give booleans [n, n_ctx] = {list(wanted)}, not {_kind(mask)}")
        if not mask.any():
            raise self.wrong(f"loss_mask counts no target of {len(rows)} rows: there is nothing to learn")
        return mask

    def wrong(self, what: str) -> ValueError:
        return ValueError(f"data.corpus={self.name}: {what}")

    def _ask(self, what: str, *args: Any) -> Any:
        try:
            return getattr(self.source, what)(*args)
        except Exception as error:  # somebody's code, which raises whatever it runs into
            raise self.wrong(f"{what} raised {type(error).__name__}: {error}") from error

    def _rows(self, what: str, n: int, rows: Any) -> Rows:
        wanted, found = (n, self.n_ctx + 1), np.asarray(rows)
        if found.shape != wanted or found.dtype.kind not in "iu":
            raise self.wrong(f"{what} must give whole numbers [n, n_ctx + 1] = {list(wanted)}, not {_kind(found)}")
        if n and not (found.min() >= 0 and found.max() < self.d_vocab):
            raise self.wrong(
                f"{what} gave ids from {found.min()} to {found.max()}, and d_vocab={self.d_vocab} has those from 0 to "
                f"{self.d_vocab - 1}"
            )
        return found.astype(np.int64, copy=False)


@dataclass(frozen=True)
class OwnData:
    """All that a source says of itself."""

    source: OwnSource
    hash: str
    tokenizer: Tokenizer
    bos: int | None
    """The token that every row begins with, put in front of a prompt, too; None: there is none."""
    n_train_rows: int | None
    references: dict[str, float] = field(default_factory=dict)


def made(corpus: str, n_ctx: int, seed: int) -> OwnData:
    """The source that a named function makes, checked. ValueError, with the function's name, for what cannot be."""
    if why := why_no_corpus(corpus):
        raise ValueError(why)
    try:
        source = NAMED[corpus](n_ctx, seed)
    except Exception as error:  # somebody's code, which raises whatever it runs into
        raise ValueError(
            f"data.corpus={corpus}: called with n_ctx={n_ctx} and seed={seed} it raised {type(error).__name__}: {error}"
        ) from error
    own = OwnSource(corpus, source, n_ctx, _d_vocab(corpus, source))
    _check_repeatable(own)
    bos = getattr(source, "bos", None)
    if bos is not None and not (_is_whole(bos) and 0 <= bos < own.d_vocab):
        raise own.wrong(f"bos={bos!r} is no token of d_vocab={own.d_vocab}")
    n_rows = getattr(source, "n_train_rows", None)
    if n_rows is not None and not (_is_whole(n_rows) and n_rows > 0):
        raise own.wrong(f"n_train_rows={n_rows!r} must be a whole number above 0")
    digest = getattr(source, "hash", None)
    if digest is not None and not (isinstance(digest, str) and 0 < len(digest) <= LONGEST_HASH):
        raise own.wrong(f"hash={digest!r:.60} must be a text of at most {LONGEST_HASH} characters")
    return OwnData(own, _digest(own) if digest is None else digest, _tokenizer(own, bos), bos, n_rows,
                   _references(own))  # fmt: skip


def _d_vocab(corpus: str, source: Any) -> int:
    if lacking := [name for name in ("rows", "held_out", "d_vocab") if not hasattr(source, name)]:
        raise ValueError(
            f"data.corpus={corpus} returned {kind_of(source)} without {', '.join(lacking)}: a source has "
            f"rows(rng, n), held_out(n) and d_vocab"
        )
    if not (_is_whole(source.d_vocab) and 3 <= source.d_vocab <= WIDEST["d_vocab"]):
        raise ValueError(
            f"data.corpus={corpus}: d_vocab={source.d_vocab!r} must be a whole number from 3 to {WIDEST['d_vocab']:,}"
        )
    return int(source.d_vocab)


def _check_repeatable(own: OwnSource) -> None:
    once, again = (own.rows(np.random.default_rng(0), CHECKED) for _ in range(2))
    if not np.array_equal(once, again):
        raise own.wrong(
            "rows gave other rows for the same rng and n: they must be a function of rng alone, so that a run that was "
            "stopped goes on with the batches that it would have had"
        )
    first, second = (own.held_out(CHECKED) for _ in range(2))
    if not np.array_equal(first, second):
        raise own.wrong("held_out gave other rows the second time: they must stay the same")
    for rows in (once, first) if own.has_mask else ():
        if not np.array_equal(own.loss_mask(rows), own.loss_mask(rows)):
            raise own.wrong("loss_mask gave another mask for the same rows")


def _digest(own: OwnSource) -> str:
    """Tells this data set from others: by its name, and the first of its rows."""
    rows = [own.rows(np.random.default_rng(0), DIGESTED), own.held_out(DIGESTED)]
    masks = [own.loss_mask(one) for one in rows] if own.has_mask else []
    content = hashlib.sha256(b"".join(one.tobytes() for one in (*rows, *masks))).hexdigest()
    return cache.key(corpus=own.name, d_vocab=own.d_vocab, rows=content)


def _tokenizer(own: OwnSource, bos: int | None) -> Tokenizer:
    given = getattr(own.source, "tokenizer", None)
    if given is None:
        return words(own.d_vocab, bos)
    found = getattr(given, "backend_tokenizer", given)
    if not isinstance(found, Tokenizer):
        raise own.wrong(f"tokenizer is {kind_of(given)}, neither of `tokenizers` nor a fast one of transformers")
    if found.get_vocab_size() != own.d_vocab:
        raise own.wrong(f"tokenizer has {found.get_vocab_size()} tokens, and d_vocab={own.d_vocab}")
    return found


def _references(own: OwnSource) -> dict[str, float]:
    given = getattr(own.source, "references", None) or {}
    if not isinstance(given, Mapping) or len(given) > MOST_REFERENCES:
        raise own.wrong(f"references must be a dict of at most {MOST_REFERENCES} losses by name")
    for name, loss in given.items():
        if not (isinstance(name, str) and 0 < len(name) <= LONGEST_REFERENCE):
            raise own.wrong(f"references: {name!r} is no name of at most {LONGEST_REFERENCE} letters")
        if not (isinstance(loss, int | float | np.number) and math.isfinite(loss)):
            raise own.wrong(f"references: {name}={loss!r} is no finite loss in nats")
    return {name: float(loss) for name, loss in given.items()}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape)}"
