"""Curves over training: a few named lines or hundreds of heads; the nearest lights up, a click selects it."""

from collections.abc import Callable

from dashboard import theme
from dashboard.components.host import Part, controlled

_PART = Part("curves")


def curves(
    blob: bytes,
    *,
    key: str,
    selected: str | None = None,
    step: float | None = None,
    log_x: bool = False,
    scale: theme.Scale | None = None,
    x_label: str = "step",
    selectable: bool = True,
    n_groups: int | None = None,
    height: int = 320,
    on_change: Callable[[str | None], None] | None = None,
) -> str | None:
    """Draw payload.curves(...); returns the label in force, None when nothing is selected.

    A vertical line marks `step`, a dashed one the scale's chance; `n_groups` (default 8) sizes the layer palette.
    """
    cue = {
        "step": step,
        "log_x": log_x,
        "scale": (scale or theme.Scale("Value", digits=3)).payload(),
        "colours": theme.layer_colours(n_groups or 8),
        "x_label": x_label,
        "selectable": selectable,
        "height": height,
    }
    return controlled(_PART, blob, cue, key=key, current=selected, read=lambda v: v or None, on_change=on_change)
