"""Choosing what the heads look at: a text of one's own, or a kept prompt where the model cannot be run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import streamlit as st

from dashboard import loading, state
from dashboard.loading import prompt_tokens, recorded_prompts
from dashboard.shared import choosers

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from tracer.data import Encoded
    from tracer.store import Run


def can_read(run: Run) -> bool:
    """Can the model of this run be run on a new text? A run that has just begun will be able to."""
    return run.can("prompts")


def searched(run: Run) -> list[int]:
    """Steps at which text can be searched for what heads look at: snapshots, or those of kept prompts of tokens."""
    if can_read(run):
        return run.steps
    try:
        found = recorded_prompts.prompts(run)
    except ValueError:
        return []
    return found.steps if found.names and run.about.d_vocab else []


def choose_text(
    run: Run, most: int | None = None, place: DeltaGenerator | None = None,
    refuse: Callable[[str], NoReturn] = choosers.refuse,
) -> Encoded:  # fmt: skip
    """A text box, at `place` if that is given; refuses what the model cannot read and says what to do.

    `most`: tokens that this page shows.
    """
    from tracer.data import PromptTooLong

    _wait_for_a_record(run)
    selection = state.read()
    try:
        shown = selection.prompt or prompt_tokens.example(run)
    except ValueError as error:
        refuse(str(error))
    text = (place or st).text_area(
        "Prompt", height=68,
        help="Your own text: Enter reads it, Shift and Enter begin a line (on a touch screen Enter does). Heads that "
        "look for earlier copies show themselves when something repeats.",
        **state.control("prompt_box", shown, lambda text: state.update(prompt=text, cell=None)),
    ) or shown  # fmt: skip
    if len(selection.prompt) > state.LONGEST_PROMPT:
        st.caption("This text is too long for a link: the address leaves it out.")
    try:
        return prompt_tokens.encode(run, text, most)
    except PromptTooLong as error:
        encoded = prompt_tokens.encode(run, text, most, cut=True)
        holder = "this page takes" if error.n_ctx == most and most != run.about.n_ctx else "the context holds"
        st.warning(
            f"The prompt is {error.n_tokens:,} tokens, {holder} {error.n_ctx:,}: "
            f"shown are the first {error.n_ctx:,}, the last {encoded.n_dropped:,} are left out.",
            icon=":material/content_cut:",
        )
        return encoded
    except ValueError as error:
        refuse(str(error))


def _wait_for_a_record(run: Run) -> None:
    """Stop the page of a run that has only just begun, and draw it once the first row is there."""

    def look() -> None:
        if choosers.recorded(run) is not None:
            st.rerun()

    try:
        loading.trace(run)
    except ValueError:
        choosers.tick(run, look)
        st.stop()


def choose_kept(run: Run, place: DeltaGenerator) -> str | None:
    """A select box of the run's own prompts, with the reason why there is no text box; None where none is kept."""
    try:
        names = recorded_prompts.prompts(run).names
    except ValueError:
        names = []
    if not names:
        return None
    chosen = state.among("kept", names) or names[0]
    name = place.selectbox(
        "Prompt", names, help="Kept by the run, with its patterns", format_func=lambda name: title(run, name),
        **state.control("kept_box", chosen, lambda name: state.update(kept=name, cell=None)),
    )  # fmt: skip
    why = run.why_not("prompts")
    st.caption(f"{why}: these are prompts that it kept. In Python, `tracer.watch(model)` shows any input.")
    return name


def title(run: Run, name: str) -> str:
    """What a model reads that reads no tokens is no text."""
    return name if run.about.d_vocab is not None else name.replace("text", "input")
