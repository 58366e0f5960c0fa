"""On a person's own text: what every part adds to the next token's logit, and what the model says after each layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import prompt_attention, prompt_tokens
from dashboard.shared import prompts
from dashboard.shared.guesses import draw_said
from dashboard.shared.mount import draw
from dashboard.shared.plots import plot, table
from dashboard.views.circuits import data, figures, headings
from tracer.measures.aliases import Head
from tracer.pictures import headmap, tokens
from tracer.pictures.payload import visible
from tracer.store import Run

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

LONGEST = 512
"""Tokens of a prompt."""
EVERY_ON = "all heads on"
"""Name of the column beside the probability with heads off."""


def draw_next(run: Run, step: int, off: tuple[Head, ...]) -> None:
    """What the model says after the text, with some heads `off`, before anything that takes longer.

    Nothing where it cannot read the text, which `draw_prompt` says, or foretells no tokens.
    """
    try:
        encoded = prompt_tokens.encode(run, state.read().prompt or prompt_tokens.example(run), LONGEST, cut=True)
        now, then = (prompt_attention.foretold(run, step, tuple(encoded.tokens), gone) for gone in (off, ()))
    except ValueError:
        return
    if now is not None and then is not None:
        draw_said(run, now, then, off, quiet=bool(off))  # the strip's note says it


def draw_prompt(run: Run, step: int, head: Head, off: tuple[Head, ...], writing: DeltaGenerator) -> None:
    """With some heads `off`: the box of the text at `writing`, and what made each next token.

    Ends the page when the text cannot be read, so it is drawn last.
    """
    why_not = run.why_not("attribution")
    if not why_not:
        headings.heading("What made the next token", headings.LOGIT, "logit")
    encoded = prompts.choose_text(run, LONGEST, writing)
    prompt, last = tuple(encoded.tokens), len(encoded.tokens) - 1
    if why_not:
        st.caption(why_not)
        return
    held = state.read().token
    position = min(max(0, last - 1) if held is None else held, last)
    label = theme.head_label(*head)
    try:
        found = data.parts_of_logit(run, step, prompt, off)
        shares = found.heads[head]
    except ValueError as error:
        found, why_not, shares = None, str(error), np.full(len(prompt), np.nan)
    size = max(0.1, float(np.nanmax(np.abs(shares), initial=0.0)))
    left, right = st.columns([5, 4], gap="large")
    with left:
        st.caption(f"Colour: what {label} adds to the logit of the token that comes after. Choose a token."
                   if found else "Choose a token.")  # fmt: skip
        picture = tokens.picture(
            encoded.strings, np.where(np.isfinite(shares), 0.0, np.nan), shares, selected=position,
            scale=theme.Scale(f"Added by {label}", "logits", -size, size, "change", 1), names=None,
        )  # fmt: skip
        draw(picture, key="logit_tokens", on_change=lambda i: state.update(token=i))
    with right:
        _draw_lens(run, step, prompt, position, off)
    if found is None:
        st.caption(theme.sentence(why_not))
        return
    before = float(data.parts_of_logit(run, step, prompt).logit[position]) if off and position < last else None
    _draw_parts(run, found, position, head, off, before)


def _next(run: Run, target: int, position: int, last: int) -> str:
    """The token that follows, in words; shown as text, never as Markdown."""
    token = visible(prompt_tokens.strings(run, [target])[0], 24)
    how = "which the model thinks likeliest" if position == last else "which comes"
    return f"“{token}”, {how} after token {position}"


def _draw_lens(run: Run, step: int, prompt: tuple[int, ...], position: int, off: tuple[Head, ...]) -> None:
    log_p, ranks = data.lens(run, step, prompt, position, off)
    last, d_vocab = len(log_p) - 1, run.about.d_vocab
    assert d_vocab is not None  # it read a prompt
    st.markdown("**Logit lens**")
    st.caption(
        f"What the model would say if it stopped after each layer, at token {position}. "
        f"At chance: {1 / d_vocab:.1g}, {-math.log(d_vocab):.2f}, {d_vocab // 2:,}".replace("-", "−")
    )
    config = {
        "probability": st.column_config.ProgressColumn(format="%.3f", min_value=0, max_value=1),
        "log p": st.column_config.NumberColumn(format="%.2f"),
        "rank": st.column_config.NumberColumn(format="localized"),
    }
    beside = {}
    if off and position < len(prompt) - 1:  # after the last token the likeliest may be another
        beside = {EVERY_ON: np.exp(data.lens(run, step, prompt, position)[0]).tolist()}
        config[EVERY_ON] = st.column_config.NumberColumn(format="%.3f")
    table(
        {"after": ["embedding", *(f"layer {i}" for i in range(last))], "probability": np.exp(log_p).tolist(), **beside,
         "log p": log_p.tolist(), "rank": (ranks + 1).tolist()},
        key="lens", alt=f"The next token's probability after each layer, at token {position}", config=config,
    )  # fmt: skip


def _draw_parts(
    run: Run, found: data.LogitParts, at: int, head: Head, off: tuple[Head, ...], before: float | None
) -> None:  # fmt: skip
    """`before`: the logit with all heads on, where some are `off`."""
    last = len(found.targets) - 1
    heads = found.heads[:, :, at]
    parts = {"embedding": float(found.embed[at])}
    for layer, row in enumerate(heads):
        parts[f"heads of layer {layer}"] = float(row.sum())
        if found.mlps.any():
            parts[f"MLP of layer {layer}"] = float(found.mlps[layer, at])
    if found.biases.any():
        parts["biases"] = float(found.biases[at])
    total = sum(parts.values())
    precise = theme.digits([*parts.values(), total])
    left, right = st.columns([5, 4], gap="large")
    size = max(0.1, float(np.nanmax(np.abs(heads), initial=0.0)))
    with left:
        picture = headmap.picture(
            heads, selected=head, off=off, title=f"What each head adds to {_next(run, found.targets[at], at, last)}",
            scale=theme.Scale("Added", "logits", -size, size, "change", theme.digits(heads.ravel())),
        )  # fmt: skip
        draw(picture, key="logit_heads", on_change=state.focus_on)
    with right:
        st.markdown("**The sum of all parts**")
        figure = figures.contributions(list(parts), list(parts.values()), "logits")
        plot(figure, key="sum", alt=f"{len(parts)} parts of a logit and their sum, {theme.signed(total, precise)}",
             numbers=lambda: {"part": [*parts, "sum"], "logits": [*parts.values(), total]})  # fmt: skip
        logit = float(found.logit[at])
        was = "" if before is None else f", with all heads on {theme.signed(before, precise)}"
        st.caption(
            f"Its logit minus the mean logit is {theme.signed(logit, precise)}{was}; the parts sum to that within "
            f"{max(abs(total - logit), 1e-9):.0e}."
        )
