"""Take it with you: the view as one file that works offline, its link, and the lines of Python that show it again."""

from __future__ import annotations

from dashboard.loading.looking import Head, Sight
from tracer.store import Run


def draw_taking(run: Run, sight: Sight, focus: Head, measure: str) -> None:
    """A popover in the head line of Heads."""
