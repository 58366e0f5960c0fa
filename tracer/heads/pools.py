"""Patterns made small: one number for each cell of several rows by several keys."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Pattern = Float[Tensor, "*batch rows keys"]
Pooled = Float[Tensor, "*batch cell_row cell_col"]


def factor(n: int, size: int) -> int:
    """Positions in a cell: the fewest with which n positions make at most `size` cells."""
    if size < 1:
        raise ValueError(f"a picture of {size} cells a side cannot be drawn: ask for at least 1")
    return -(-n // size)


def max_pool(x: Pattern, rows: int, keys: int, fill: float = 0.0) -> Pooled:
    """The largest number in each cell of rows x keys; the last cells are filled up."""
    x = _cells(x, rows, 1, fill).amax((-3, -1))
    return _cells(x, 1, keys, fill).amax((-3, -1))


def sum_pool(x: Pattern, rows: int, keys: int) -> Pooled:
    """The sum of each cell of rows x keys."""
    x = _cells(x, rows, 1, 0.0).sum((-3, -1))
    return _cells(x, 1, keys, 0.0).sum((-3, -1))


def thumbs(pattern: Pattern, size: int) -> Pooled:
    """The largest weight in each cell, with cells just large enough that there are at most size x size."""
    return max_pool(pattern, *(factor(n, size) for n in pattern.shape[-2:]))


def sizes(n: int, cell: int, like: Tensor) -> Float[Tensor, " cells"]:
    """How many of n positions each cell has: `cell`, or what is left for the last."""
    return torch.tensor([min(cell, n - start) for start in range(0, n, cell)], dtype=like.dtype, device=like.device)


def _cells(
    x: Pattern, rows: int, keys: int, fill: float
) -> Float[Tensor, "*batch cell_row row_in_cell cell_col col_in_cell"]:
    missing_rows, missing_keys = -x.shape[-2] % rows, -x.shape[-1] % keys
    if missing_rows or missing_keys:
        x = F.pad(x, (0, missing_keys, 0, missing_rows), value=fill)
    return x.unflatten(-1, (-1, keys)).unflatten(-3, (-1, rows))
