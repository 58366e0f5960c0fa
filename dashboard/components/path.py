"""The way of a run through a plane, a point a step; a click goes to a step."""

from collections.abc import Callable

from dashboard.components.host import Part, controlled

_PART = Part("path")


def path(
    blob: bytes,
    *,
    key: str,
    step: int | None = None,
    window: tuple[int, int] | None = None,
    height: int = 340,
    on_change: Callable[[int], None] | None = None,
) -> int | None:
    """Draw path.path(...); returns the step in force. The way within `window` is drawn thicker."""
    cue = {"window": window and list(window), "height": height}
    return controlled(_PART, blob, cue, key=key, current=step, read=int, on_change=on_change)
