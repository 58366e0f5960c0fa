"""What a page answers of the run or step that it is compared with: a quiet line below its own answer."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import theme
from dashboard.shared.comparing import is_compared, other_run, other_step, refuse, steps_of
from tracer.store import Run


def draw_beside(run: Run, step: int, say: Callable[[Run, int], str]) -> None:
    """`say` answers in Markdown for a run and a step, or a ValueError says why not; nothing where none is chosen."""
    if not is_compared(run, prompt=False):
        return
    with st.container(key="beside", gap="xxsmall"):
        try:
            other = other_run(run)
            at = other_step(steps_of(other, run) or [step], step)
            draw_line(other, at, say(other, at))
        except (ValueError, OSError) as error:
            refuse(str(error))


def draw_line(other: Run, step: int, said: str) -> None:
    """What is said of another run, or of this one at another step."""
    st.caption(f"**B** {theme.unmarked(other.name)}, step {step:,}: {said}")
