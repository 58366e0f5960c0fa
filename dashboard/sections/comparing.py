"""Two prompts, two steps or two runs side by side: one head's patterns, and their difference."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.loading.looking import Head, Sight
from tracer.store import Run

See = Callable[[int], Sight]
"""Every head on a prompt, at a step."""


def choose_other(run: Run, steps: list[int]) -> None:
    """What to compare with: nothing, another prompt, another step or another run."""


def draw_comparison(run: Run, sight: Sight, see: See, focus: Head) -> None:
    """Nothing unless something was chosen to compare with."""
