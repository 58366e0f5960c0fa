"""What tables of claims are made of: values that JSON keeps, and rows as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def plain(value: Any) -> Any:
    """Numbers to six digits, lists for tuples; what is not a number is None."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines) + "\n"
