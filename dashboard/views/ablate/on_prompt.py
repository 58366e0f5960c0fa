"""The Ablate page on a person's own text: loss of every token, next tokens, and a head's pattern, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import ablation, head_scores, prompt_tokens
from dashboard.loading.ablation import Setup
from dashboard.shared import choosers, prompts
from dashboard.shared.mount import draw
from dashboard.shared.plots import plot
from dashboard.views.ablate import figures
from tracer.pictures import pattern, payload, tokens
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

TOP = 8
LONGEST = 1024
"""Tokens of a prompt whose losses are shown one by one."""
WINDOW = 256
"""Tokens of a pattern that is drawn."""


def draw_prompt(run: Run, setup: Setup, trace: xr.Dataset) -> None:
    """Ends the page when the text cannot be read, so it is drawn last."""
    encoded = prompts.choose_text(run, LONGEST)
    prompt, last = tuple(encoded.tokens), len(encoded.tokens) - 1
    position = min(st.session_state.get("ablate_position", (prompt, last))[1], last)
    if st.session_state.get("ablate_position", (prompt,))[0] != prompt:
        position = last  # another text: begin at its end
    try:
        found = ablation.on_prompt(setup, prompt, position)
    except ValueError as error:
        choosers.refuse(str(error))
    change = found["loss_after"] - found["loss_before"]
    size = max(0.5, float(np.nanmax(np.abs(change), initial=0.0)))
    left, right = st.columns([5, 4], gap="large")
    with left:
        st.caption("Colour: how much harder each token became to predict. Choose a token to see what comes after it.")
        picture = tokens.picture(
            encoded.strings, found["loss_before"], found["loss_after"], selected=position,
            scale=theme.Scale("Change in loss", "nats", -size, size, "change", 1),
        )  # fmt: skip
        draw(picture, key="prompt_tokens", on_change=lambda i: st.session_state.update(ablate_position=(prompt, i)))
    with right:
        _draw_next(run, found, prompt, position, bool(setup.off))
    if st.toggle("Show a head's pattern with these heads off", key="ablate_patterns"):
        _draw_patterns(setup, prompt, encoded.strings, trace)


def _draw_next(run: Run, found: dict[str, np.ndarray], prompt: tuple[int, ...], position: int, ablated: bool) -> None:
    before, after = found["next_before"], found["next_after"]
    ids = [int(i) for i in np.argsort(-np.maximum(before, after), kind="stable")[:TOP]]
    ids.sort(key=lambda i: -before[i])
    following = prompt[position + 1] if position + 1 < len(prompt) else None
    if following is not None and following not in ids:
        ids[-1] = following
    st.caption(f"What comes after token {position}, with all heads on (grey) and with these off."
               if ablated else f"What comes after token {position}.")  # fmt: skip
    tokens = [payload.visible(text, 24) for text in prompt_tokens.strings(run, ids)]
    figure = figures.next_tokens(
        tokens, before[ids].tolist(), after[ids].tolist(), ablated=ablated,
        true=ids.index(following) if following is not None else None,
    )  # fmt: skip
    plot(figure, key="next_tokens", alt=f"The likeliest tokens after token {position}",
         numbers=lambda: {"token": tokens, "before": before[ids].tolist(), "after": after[ids].tolist()})  # fmt: skip


def _draw_patterns(setup: Setup, prompt: tuple[int, ...], strings: list[str], trace: xr.Dataset) -> None:
    heads = [(int(layer), int(head)) for layer, head in np.argwhere(head_scores.head_exists(trace))]
    head = st.selectbox(
        "Head", heads, format_func=lambda h: theme.head_label(*h), width=160,
        **state.control("ablate_focus", choosers.focus(trace, setup.step), state.focus_on),
    )  # fmt: skip
    start = max(0, len(prompt) - WINDOW)
    if start:
        st.caption(f"Shown are the last {WINDOW} tokens; Heads shows any part of the prompt.")
    before, after = ablation.patterns(setup, prompt, head, WINDOW)
    for column, name, values in zip(st.columns(2, gap="large"), ("Before", "After"), (before, after), strict=True):
        with column:
            st.markdown(f"**{name}**")
            blob = pattern.pack(
                values, strings[start:], label=theme.head_label(*head), query_start=start, key_start=start
            )
            draw(pattern.picture(blob, max_size=460, text=False), key=f"pattern_{name}")
