"""Curves of different units in lanes on one axis of steps, the window of each turn shaded; a click goes to a step."""

from collections.abc import Callable

from dashboard.components.host import Part, controlled

_PART = Part("timeline")


def timeline(
    blob: bytes,
    *,
    key: str,
    step: int | None = None,
    log_x: bool = False,
    on_change: Callable[[int], None] | None = None,
) -> int | None:
    """Draw timeline.timeline(...); returns the step in force. A vertical line marks it."""
    return controlled(_PART, blob, {"log_x": log_x}, key=key, current=step, read=int, on_change=on_change)
