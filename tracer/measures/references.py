"""Losses with a name that a run's own is compared with: of guessing, of counting, and whatever its source knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def references(meta: Mapping[str, Any]) -> dict[str, float]:
    """By name, in nats; `unigram` is of whoever knows only how frequent each token is, as runs of before said apart."""
    before = meta.get("unigram_loss")
    return {**({} if before is None else {"unigram": before}), **meta.get("references", {})}
