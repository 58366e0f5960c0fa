"""The token view: the prompt as text, shaded by where a token looks; beside it what every head does with that token.

1. A reading is attention, or attention times how much there is to read (value-weighted), each with the first token or
   without it; every row of it sums to 1.
2. The browser gets attention itself, the keys' norms and the sums of rows, and makes each reading of them.
3. What all heads do with a token (the strongest link of each) is computed here, so that it is there for every head
   even where only the patterns of one layer fit into a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.measures.aliases import Floats, Head
from tracer.pictures import payload
from tracer.pictures.payload import quantise_linear, quantise_sqrt, visible
from tracer.pictures.picture import Picture, as_head

Pick = tuple[int | None, Head]
"""The held token, counted from the start of the prompt, and the head in focus."""

WHOLE = 256
"""Tokens of one message at most, so that a position fits into a byte."""
BUDGET = 2 * 2**20
"""Bytes of a message before it is deflated."""
LINE = 90
"""Characters of one, about."""
LONGEST = 120
"""Characters of a token in the text."""


@dataclass(frozen=True)
class Plan:
    """What one message holds."""

    n: int
    """Tokens, of the same prompt."""
    whole: bool
    """The patterns of every layer, or of one."""
    width: int
    """Bytes a number: 2 (error at most 1/131068) or 1 (at most 0.004 where shares are 1, less where they are small)."""


def picture(blob: bytes, *, token: int | None, head: Head, step: int = 0) -> Picture:
    """`pack(...)`, drawn; picks a token to hold and a head.

    `step` is that of the payload: until it has arrived, a film that was played stays in view.
    """
    lines = 1 + sum(map(len, payload.header(blob)["texts"])) // LINE
    return Picture("token_view", {"step": step}, blob, (token, head), _read, 240 + 26 * lines)


def _read(picked: Any) -> Pick:
    return picked[0], as_head(picked[1])


def plan(n_tokens: int, n_layers: int, n_heads: int, *, causal: bool = True) -> Plan:
    """As many tokens as fit, then every layer, then two bytes a number."""
    for n in sorted({min(n, n_tokens) for n in (WHOLE, 192, 128, 96, 64, 32)}, reverse=True):
        for held, width in ((n_layers, 2), (n_layers, 1), (1, 2), (1, 1)):
            if _raw(n, n_layers, n_heads, held, width, causal) <= BUDGET:
                return Plan(n, held == n_layers, width)
    return Plan(min(32, n_tokens), n_layers == 1, 1)


def _raw(n: int, n_layers: int, n_heads: int, held: int, width: int, causal: bool) -> int:
    cells = n * (n + 1) // 2 if causal else n * n
    strongest, rows = 24 * n_layers * n_heads * n, 20 * (held * n_heads + 1) * n
    return (held * n_heads + 4) * cells * width + strongest + rows


def readings(rows: ArrayLike, norms: ArrayLike | None = None) -> Floats:
    """[2 or 4 query_pos key_pos]: attention, without the first key; then both value-weighted, when there are norms.

    rows: attention [query_pos key_pos] to every key; norms [key_pos]. A row sums to 1, or is 0 where nothing is left.
    """
    kept = _kinds(np.asarray(rows, np.float64), None if norms is None else np.asarray(norms, np.float64))
    return _over(kept, kept.sum(2))


def _kinds(attention: Floats, norms: Floats | None) -> Floats:
    """Attention and, with norms, what is read of each key; each with the first key and without."""
    kinds = [attention] if norms is None else [attention, attention * norms]
    return np.stack([x * keeps for x in kinds for keeps in (1, np.arange(x.shape[1]) > 0)])


def _over(x: Floats, totals: Floats) -> Floats:
    """x / totals along the last axis, 0 where the total is."""
    totals = totals.reshape(*totals.shape, *(1,) * (x.ndim - totals.ndim))
    return np.divide(x, totals, out=np.zeros_like(x), where=totals > 0)


def pack(
    rows: Callable[[int, int], ArrayLike],
    tokens: Sequence[str],
    *,
    there: ArrayLike,
    causal: Sequence[bool],
    norms: ArrayLike | None = None,
    start: int = 0,
    layer: int = 0,
    step: int = 0,
) -> bytes:
    """What each head does with `tokens`, which stand at `start` of their prompt.

    rows(layer, head): attention of these tokens to every key of the prompt [query_pos key_pos]; norms [layer head
    key_pos] as `tracer.heads.weighting.read_norms`; there [layer head]: which heads look at these tokens at all;
    layer: the one whose patterns are held where not all of them fit; step: when this was.
    """
    exists, n = np.asarray(there, bool), len(tokens)
    n_layers, n_heads = exists.shape
    made = plan(n, n_layers, n_heads, causal=all(causal))
    if made.n < n:
        raise ValueError(f"{n} tokens of {n_layers} x {n_heads} heads do not fit into a message: pass {made.n} of them")
    held = range(n_layers) if made.whole else range(layer, layer + 1)
    page, kinds, part = slice(start, start + n), 2 if norms is None else 4, False
    shares = np.zeros((len(held), n_heads, n, n), np.float32)
    sums = np.ones((kinds, len(held) * n_heads + 1, n), np.float32)
    strongest = np.zeros((2, kinds, n_layers, n_heads, n), np.float32)
    at = np.zeros(strongest.shape, np.uint8)
    mean = np.zeros((kinds, n, n))
    first = np.zeros((kinds // 2, n))
    for one, head in np.argwhere(exists).tolist():
        attention = np.nan_to_num(np.asarray(rows(one, head), np.float64))
        part |= attention.shape[1] > n
        kept = _kinds(attention, None if norms is None else np.asarray(norms, np.float64)[one, head])
        totals = kept.sum(2)
        found = _over(kept, totals)[:, :, page]
        for way, axis in enumerate((2, 1)):
            strongest[way, :, one, head], at[way, :, one, head] = found.max(axis), found.argmax(axis)
        mean += found / exists.sum()
        first += (1 - _over(totals[1::2], totals[::2])) / exists.sum()
        if one in held:
            shares[one - held.start, head] = attention[:, page]
            sums[:, (one - held.start) * n_heads + head] = totals
    sums[1::2, -1] = 1 - first
    triangle = all(causal)
    header = {
        "tokens": [visible(t) for t in tokens], "texts": [laid_out(t) for t in tokens], "start": start, "part": part,
        "step": step, "apart": not any(re.search(r"\s", t) for t in tokens), "layers": [held.start, held.stop],
        "triangle": triangle, "causal": [bool(c) for c in causal],
    }  # fmt: skip
    rows_of, keys_of = np.tril_indices(n) if triangle else np.indices((n, n)).reshape(2, -1)
    code = quantise_sqrt if made.width == 1 else _linear
    lengths = np.zeros((0,)) if norms is None else np.nan_to_num(np.asarray(norms)[held.start : held.stop, :, page])
    return payload.pack(
        header, shares=code(shares[:, :, rows_of, keys_of]), means=code(mean[:, rows_of, keys_of]), sums=sums,
        norms=lengths.astype(np.float32), strongest=_linear(strongest), at=at, there=exists.astype(np.uint8),
    )  # fmt: skip


def _linear(shares: ArrayLike) -> NDArray[np.uint16]:
    return quantise_linear(shares, 0, 1)


def laid_out(token: str) -> str:
    """A token as it stands in a text: blanks, tabs and newlines are kept, all else is as in `visible`."""
    parts = re.split(r"([ \t\n]+)", token.replace("\r\n", "\n")[: 2 * LONGEST])
    shown = "".join(part if i % 2 else visible(part, LONGEST) for i, part in enumerate(parts))
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
