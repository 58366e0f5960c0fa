"""Passages in which a head looks sharply, shaded by its attention; a button of each opens it as a prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures import payload
from tracer.pictures.payload import quantise_linear, visible
from tracer.pictures.picture import Picture

BEFORE, AFTER, AROUND = 24, 8, 4
"""Tokens shown before and after the query, and on each side of a key that is farther away."""
LONGEST = 40
WORDS = 0.1
"""Where fewer tokens than this share hold a space, tokens are words, and are set apart."""


@dataclass(frozen=True)
class Passage:
    """One look of a head, with the whole row of attention it belongs to."""

    group: str
    """What it is an example of: passages of one group stand together."""
    sequence: int
    query: int
    key: int
    score: float
    quantile: float
    strings: Sequence[str]
    """Every token of the sequence."""
    shares: ArrayLike
    """Attention from the query to each of them."""


@dataclass(frozen=True)
class Group:
    """What stands above some passages."""

    title: str
    about: str
    quantile: bool = False
    """Is it said of each where it stands among all looks?"""


def picture(
    blob: bytes, *, groups: Mapping[str, Group], rows: Sequence[str], digits: int = 2, named: bool = False
) -> Picture:
    """`pack(...)`, drawn; picks the number of a passage to open.

    `rows` names the sequences; `named`: a score is not a share, so the share is said as well.
    """
    cue = {
        "groups": {name: asdict(group) for name, group in groups.items()},
        "rows": list(rows),
        "digits": digits,
        "named": named,
    }
    shown = len(payload.header(blob)["passages"])
    return Picture("passages", cue, blob, None, int, 60 + 50 * len(groups) + 75 * shown)


def pack(label: str, shown: Sequence[Passage], causal: bool = True) -> bytes:
    """Passages as pieces of text around the query and the key; the shares of all shown tokens to 1/131068."""
    cards: list[dict[str, Any]] = []
    shares: list[np.ndarray] = []
    for one in shown:
        pieces = windows(len(one.strings), one.query, one.key)
        row = np.asarray(one.shares, np.float64)
        shares += [row[piece] for piece in pieces]
        cards.append({
            "group": one.group, "sequence": one.sequence, "query": one.query, "key": one.key, "score": one.score,
            "quantile": one.quantile, "p": float(row[one.key]), "starts": [piece.start for piece in pieces],
            "query_token": visible(one.strings[one.query], 16), "key_token": visible(one.strings[one.key], 16),
            "tokens": [[written(token) for token in one.strings[piece]] for piece in pieces],
        })  # fmt: skip
    spaced = [" " in token or "\n" in token for one in shown for token in one.strings]
    flat = np.concatenate(shares) if shares else np.zeros(0)
    return payload.pack(
        {"label": label, "causal": causal, "apart": sum(spaced) < WORDS * len(spaced), "passages": cards},
        shares=quantise_linear(flat, 0, 1),
    )


def windows(n: int, query: int, key: int) -> list[slice]:
    """What is shown of n tokens: those around the query, and those around a key that is not among them."""
    main = slice(max(0, query - BEFORE), min(n, query + AFTER + 1))
    if main.start <= key < main.stop:
        return [main]
    side = slice(max(0, key - AROUND), min(n, key + AROUND + 1))
    first, second = (side, main) if key < query else (main, side)
    return [first, second] if second.start - first.stop > AROUND else [slice(first.start, second.stop)]


def written(token: str) -> str:
    """A token as it stands in a text: spaces and line breaks are kept, all else is made visible."""
    kept = re.split(r"( +|\n)", token[: LONGEST + 1])
    shown = "".join("⏎\n" if part == "\n" else part if part.isspace() else visible(part) for part in kept if part)
    return shown if len(token) <= LONGEST else f"{shown[: LONGEST - 1]}…"
