"""A whole pattern in pooled blocks, and the window of it that is shown exactly: drag, click or keys move it."""

from collections.abc import Callable

from dashboard.components.host import Part, controlled
from tracer.pictures.payload import version

Window = tuple[int, int, int, int]
_PART = Part("overview")


def overview(
    blob: bytes,
    *,
    key: str,
    window: Window | None,
    head: tuple[int, int] | None = None,
    largest: int = 256,
    max_size: int = 640,
    on_change: Callable[[Window], None] | None = None,
) -> Window | None:
    """Draw payload.overview(...); returns the window in force as (query_start, query_stop, key_start, key_stop).

    A window has at most `largest` tokens a side and lies inside the pattern; of a causal one, half its rows or more see
    its first key. With `head`, the one that is drawn, a scrubber on the page drives the picture.
    """
    cue = {"largest": largest, "max_size": max_size, "head": head and list(head), "version": version(blob)}
    return controlled(_PART, blob, cue, key=key, current=window, read=lambda v: tuple(map(int, v)), on_change=on_change)
