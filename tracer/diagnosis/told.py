"""What a run says that rules of somebody's own found while it trained, for whoever has not their code."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, cast

from tracer.diagnosis.findings import Advice, Finding, Kind
from tracer.diagnosis.whereabouts import placed

if TYPE_CHECKING:
    import xarray as xr

    from tracer.store import Run

MOST = 50
"""Findings of a run,"""
MOST_TEXT = 1000
"""characters of a text,"""
MOST_HEADS = 10_000
"""and heads that are read of one."""
TEXT = (
    "Found while the run trained, by a rule of somebody's own: the run holds what it said then, and not its code. "
    "Name the rule again (--rules module:name) to look for it now."
)
"""In place of when it is found, and why there."""


def told(run: Run, trace: xr.Dataset, but: Container[str]) -> list[Finding]:
    """As the run holds them, but for these kinds; what is malformed is left out."""
    found: dict[str, Finding] = {}
    for row in _rows(run):
        if row["kind"] not in but and row["kind"].isidentifier() and row["severity"] in ("bad", "watch"):
            try:
                at, heads = placed(row["step"], row["heads"][:MOST_HEADS], trace)
            except ValueError:
                continue
            title, evidence, source = (_text(row.get(name)) for name in ("title", "evidence", "source"))
            found[row["kind"]] = Finding(
                cast("Kind", row["kind"]), row["severity"], title, at, heads, evidence, Advice(),
                f"{source or 'a rule of somebody’s own'}, as told while the run trained",
            )  # fmt: skip
    return list(found.values())[:MOST]


def _rows(run: Run) -> list[dict[str, Any]]:
    try:
        return run.findings()
    except (OSError, ValueError):  # too large, or no file
        return []


def _text(said: Any) -> str:
    """It is its author's: no character of it commands a terminal, and it is no longer than a page reads."""
    return "".join(c if c.isprintable() else "�" for c in said[:MOST_TEXT]) if isinstance(said, str) else ""
