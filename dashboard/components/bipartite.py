"""Heads in columns of their layers, joined by what they read of earlier ones: a click takes a head into focus."""

from collections.abc import Callable, Sequence
from typing import Any

from dashboard.components.host import Part, controlled

Head = tuple[int, int]
_PART = Part("bipartite")


def bipartite(
    blob: bytes,
    *,
    key: str,
    into: str,
    roles: Sequence[Sequence[str]],
    selected: Head,
    most: int = 60,
    on_change: Callable[[Head], None] | None = None,
) -> Head:
    """Draw pictures.bipartite(...), the edges of one kind; `roles` [layer head] are words below the heads' labels.

    Of edges that stand out and do not touch the selected head, the `most` strongest are drawn.
    """

    def read(head: Any) -> Head:
        return int(head[0]), int(head[1])

    cue = {"into": into, "roles": [list(row) for row in roles], "most": most}
    found = controlled(_PART, blob, cue, key=key, current=list(selected), read=read, on_change=on_change)
    return read(found)
