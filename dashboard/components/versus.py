"""Two patterns side by side, with their difference where the tokens are the same; one cross hair for all."""

from collections.abc import Callable

from dashboard.components.host import Part, controlled
from tracer.pictures.payload import version

Head = tuple[int, int]
Cell = tuple[int, int, int]
_PART = Part("versus")


def versus(
    blob: bytes,
    *,
    key: str,
    head: Head | None = None,
    locked: Cell | None = None,
    on_change: Callable[[Cell | None], None] | None = None,
) -> Cell | None:
    """Draw versus.versus(...); returns the held (query, key, panel) in force, None when nothing is held.

    A cell under the mouse of another part is taken for one of the first panel, which a scrubber on the page drives when
    its `head` is known.
    """
    cue = {"head": head and list(head), "version": version(blob)}
    current = tuple(locked) if locked is not None else None
    return controlled(
        _PART, blob, cue, key=key, current=current, read=lambda v: tuple(v) if v else None, on_change=on_change
    )
