"""Lists of rows with a bar and a number: pairs of tokens, the parts of a sum, one value a layer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from dashboard.components.host import Part, controlled
from tracer.pictures.payload import visible

_PART = Part("ledger")


@dataclass(frozen=True)
class Row:
    """One line; without a value it has no bar."""

    cells: Sequence[str]
    value: float | None = None
    extra: str | None = None
    """A second number, in words."""
    total: bool = False
    """Set apart as the sum of those above."""


@dataclass(frozen=True)
class Listing:
    """Rows under one title; `columns` name the cells, the number, and what stands beside it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row] = field(default_factory=list)
    note: str = ""
    digits: int = 2
    palette: str = "attention"
    """attention: amounts; change: signed."""
    plain: bool = False
    """Cells are our own words, not tokens."""


def ledger(lists: Sequence[Listing], *, key: str) -> None:
    """Draw the lists side by side where there is room."""
    controlled(_PART, None, {"lists": [_sent(one) for one in lists]}, key=key, current=None, read=lambda v: v,
               on_change=None)  # fmt: skip


def _sent(one: Listing) -> dict[str, Any]:
    rows = [
        {
            "cells": [cell if one.plain else visible(cell, 24) for cell in row.cells],
            "value": row.value if row.value is not None and isfinite(row.value) else None,
            "extra": row.extra,
            "total": row.total,
        }
        for row in one.rows
    ]
    return {"title": one.title, "note": one.note, "columns": list(one.columns), "rows": rows, "digits": one.digits,
            "palette": one.palette, "plain": one.plain}  # fmt: skip
