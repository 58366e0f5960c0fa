"""One head's pattern, or a window of it: queries down, keys across, the tokens beside it shaded by the one in focus."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from tracer.measures.aliases import Head
from tracer.pictures import payload
from tracer.pictures.picture import Picture, as_cell

Cell = tuple[int, int]


def picture(
    blob: bytes | None,
    *,
    locked: Cell | None = None,
    max_size: int = 640,
    head: Head | None = None,
    text: bool = True,
    explained: bool = False,
) -> Picture:
    """`pack(...)`, drawn; picks a (query, key) to lock, or None.

    Positions are those of the sequence, so a lock outlives a move of the window: it shows again when it is inside.
    `text`: the prompt beside it, shaded by the row or column under the mouse. `explained`: the page says of the locked
    cell what the picture would say. With `head` it follows a scrubber of the
    page, which films every head of this prompt.
    """
    cue = {"max_size": max_size, "head": head, "text": text, "explained": explained}
    return Picture("pattern", cue, blob, locked, as_cell, max_size + 20)


def pack(
    pattern: ArrayLike,
    tokens: Sequence[str],
    *,
    key_tokens: Sequence[str] | None = None,
    label: str = "",
    causal: bool = True,
    query_start: int = 0,
    key_start: int = 0,
) -> bytes:
    """A window of one head's pattern [query_pos key_pos] to 1/131068, with the tokens of both axes.

    Row i is query `query_start` + i, column j key `key_start` + j; without `key_tokens` both axes are the same tokens.
    """
    keys = tokens if key_tokens is None else key_tokens
    shares = payload.quantise_pattern(pattern, tokens, keys)
    if key_tokens is None and query_start != key_start:
        raise ValueError(f"query_start={query_start} and key_start={key_start} differ; pass key_tokens as well")
    same = query_start == key_start and list(tokens) == list(keys)
    header = {
        "label": label,
        "causal": causal,
        "starts": [query_start, key_start],
        "tokens": [payload.visible(t) for t in tokens],
        "breaks": _breaks(tokens),
        "keys": None if same else [payload.visible(t) for t in keys],
        "key_breaks": [] if same else _breaks(keys),
    }
    return payload.pack(header, shares=shares)


def _breaks(tokens: Sequence[str]) -> list[int]:
    return [i for i, t in enumerate(tokens) if "\n" in t]
