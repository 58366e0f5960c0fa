"""One head's pattern, or a window of it: queries down, keys across, the tokens beside it shaded by the one in focus."""

from collections.abc import Callable

from dashboard.components.host import Part, controlled
from tracer.pictures.payload import version

Cell = tuple[int, int]
_PART = Part("pattern")


def pattern(
    blob: bytes,
    *,
    key: str,
    locked: Cell | None = None,
    max_size: int = 640,
    head: tuple[int, int] | None = None,
    text: bool = True,
    on_change: Callable[[Cell | None], None] | None = None,
) -> Cell | None:
    """Draw payload.pattern(...); returns the locked (query, key) in force, None when nothing is locked.

    Positions are those of the sequence, so a lock outlives a move of the window: it shows again when it is inside.
    `text`: the prompt beside it, shaded by the row or column under the mouse. With `head` it follows a scrubber of the
    page, which films every head of this prompt.
    """
    cue = {"max_size": max_size, "head": head, "version": version(blob), "text": text}
    current = tuple(locked) if locked is not None else None
    return controlled(
        _PART, blob, cue, key=key, current=current, read=lambda v: tuple(v) if v else None, on_change=on_change
    )
