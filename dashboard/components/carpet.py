"""A carpet of heads x steps: a row a head, sorted by when it changed; click or arrows select."""

from collections.abc import Callable

from dashboard import theme
from dashboard.components.host import Part, controlled

_PART = Part("carpet")


def carpet(
    blob: bytes,
    *,
    key: str,
    selected: str | None = None,
    step: float | None = None,
    log_x: bool = False,
    scale: theme.Scale | None = None,
    height: int = 320,
    on_change: Callable[[str | None], None] | None = None,
) -> str | None:
    """Draw carpets.carpet(...); returns the label in force, None when nothing is selected.

    A vertical line marks `step`. `height` is shared by the rows, but no row is thinner than a pixel.
    """
    cue = {
        "step": step,
        "log_x": log_x,
        "scale": (scale or theme.Scale("Value", digits=3)).payload(),
        "height": height,
    }
    return controlled(_PART, blob, cue, key=key, current=selected, read=lambda v: v or None, on_change=on_change)
