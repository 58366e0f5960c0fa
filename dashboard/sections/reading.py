"""The prompt as its tokens: point at one to see where it looks, or who looks at it, through any head."""

from __future__ import annotations

from dashboard.loading.looking import Head, Sight
from tracer.store import Run


def draw_reading(run: Run, sight: Sight, focus: Head) -> None:
    """The token view of this prompt, below the pattern."""
