"""The token view: the prompt as text, shaded by where a token looks; beside it what every head does with that token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dashboard.components.host import Part, controlled

Head = tuple[int, int]
Pick = tuple[int | None, Head]
"""The held token, counted from the start of the prompt, and the head in focus."""
_PART = Part("token_view")


def token_view(
    blob: bytes,
    *,
    key: str,
    token: int | None,
    head: Head,
    step: int = 0,
    on_change: Callable[[Pick], None] | None = None,
) -> Pick:
    """Draw pictures.reading.token_view(...); returns the held token and the head in force.

    `step` is that of the payload: until it has arrived, a film that was played stays in view.
    """
    return controlled(_PART, blob, {"step": step}, key=key, current=(token, head), read=_read, on_change=on_change)


def _read(value: Any) -> Pick:
    token, (layer, head) = value
    return token, (layer, head)
