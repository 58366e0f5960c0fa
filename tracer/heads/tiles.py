"""How the scores are cut into tiles that fit in cache: some sequences, some heads, some rows, all the keys they see.

A tile's heads either share one key head or are all the heads of several, so that one matrix product computes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

CPU_SCORES = 2**18
"""1 MB of float32: it stays in cache, and fresh memory, which a short context fills once, is slow."""
MAX_CPU_SCORES = 2**19
"""2 MB, for long contexts: with too few rows the matrix product is slow."""
GPU_SCORES = 2**25
"""128 MB of float32: few launches, little memory."""
MAX_ROWS = 128


@dataclass(frozen=True)
class Tiles:
    """Slices that together cover every score once."""

    sequences: list[slice]
    rows: list[slice]
    heads: list[tuple[slice, slice]]
    """Of the key heads, and of the query heads that share each."""
    largest: int
    """Scores of the largest tile."""


def budget(key_pos: int, device: torch.device) -> int:
    """How many scores a tile should have."""
    if device.type != "cpu":
        return GPU_SCORES
    return min(max(CPU_SCORES, 4 * MAX_ROWS * key_pos), MAX_CPU_SCORES)


def tiles(batch: int, kv_head: int, group: int, query_pos: int, key_pos: int, scores: int, cell: int = 1) -> Tiles:
    """Tiles of at most `scores` scores, or one row of one head; none straddles a border between cells of rows."""
    most = max(1, min(query_pos, MAX_ROWS, scores // key_pos))
    height = max(1, most // cell) * cell
    rows = [
        slice(start, min(start + most, top + height, query_pos))
        for top in range(0, query_pos, height)
        for start in range(top, min(top + height, query_pos), min(most, height))
    ]
    heads = max(1, scores // (most * key_pos))
    shared, sharing = min(kv_head, max(1, heads // group)), min(group, heads)
    sequences = min(batch, max(1, heads // (kv_head * group)))
    return Tiles(
        sequences=_cut(batch, sequences),
        rows=rows,
        heads=[(kv, queries) for kv in _cut(kv_head, shared) for queries in _cut(group, sharing)],
        largest=sequences * shared * sharing * min(most, height) * key_pos,
    )


def _cut(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
