"""Reading statistics by name, whether of rows or of all of them."""

from typing import Any

from tracer.heads import HeadStats


def field(stats: HeadStats, name: str) -> Any:
    return stats.rows[name] if name in stats.rows else getattr(stats, name)
