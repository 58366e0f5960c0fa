"""Rows of tokens from a file that a person names: whole numbers in .npy, or text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from tokenizers import Tokenizer

from tracer.data.tokenizer import ids_of


def rows(
    path: Path, tokenizer: Callable[[], Tokenizer], n_ctx: int | None, bos: int | None
) -> Int64[np.ndarray, "sequence pos"]:
    """Of .npy what it holds; of text rows of n_ctx tokens, each after the start token, and what is left over not.

    ValueError, naming the file, for what is neither.
    """
    if path.suffix == ".npy":
        return _ids(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is neither .npy nor text in UTF-8: {error}") from error
    ids, start = ids_of(tokenizer(), text), [] if bos is None else [bos]
    row = len(ids) if n_ctx is None else min(n_ctx - len(start), len(ids))
    if row < 1:
        raise ValueError(f"{path} holds no text to be tokenised")
    return np.array([start + ids[i : i + row] for i in range(0, len(ids) - row + 1, row)], np.int64)


def _ids(path: Path) -> Int64[np.ndarray, "sequence pos"]:
    try:
        found = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path} is no array of whole numbers as numpy.save writes it: {error}") from error
    if found.ndim != 2 or not np.issubdtype(found.dtype, np.integer):
        raise ValueError(f"{path} must hold whole numbers [sequence pos], not {found.dtype} {list(found.shape)}")
    return found.astype(np.int64)
