"""How the pictures that still have a wrapper of their own are mounted."""

from collections.abc import Callable
from typing import Any

from dashboard.shared.mount import draw
from tracer.pictures.picture import Picture

Part = str


def controlled(
    part: Part, data: bytes | None, cue: dict[str, Any], *, key: str, current: Any, read: Callable[[Any], Any],
    on_change: Callable[[Any], None] | None,
) -> Any:  # fmt: skip
    """`draw` of what a wrapper says."""
    return draw(Picture(part, cue, data, current, read), key=key, on_change=on_change)
