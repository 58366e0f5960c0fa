"""A value at each step and position of the context; a click goes to a step."""

from collections.abc import Callable

from dashboard import theme
from dashboard.components.host import Part, controlled

_PART = Part("surface")


def surface(
    blob: bytes,
    *,
    key: str,
    scale: theme.Scale,
    step: int | None = None,
    log_x: bool = False,
    window: tuple[int, int] | None = None,
    height: int = 300,
    on_change: Callable[[int], None] | None = None,
) -> int | None:
    """Draw surface.surface(...); returns the step in force. Dashed lines mark the ends of `window`."""
    cue = {"scale": scale.payload(), "log_x": log_x, "window": window and list(window), "height": height}
    return controlled(_PART, blob, cue, key=key, current=step, read=int, on_change=on_change)
