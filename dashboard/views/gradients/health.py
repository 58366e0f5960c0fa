"""How an update ratio reads, in a word, and where that reading comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import streamlit as st
from numpy.typing import ArrayLike

from dashboard import theme
from tracer.config import OptimConfig
from tracer.measures import UPDATE_BANDS, UPDATE_BANDS_SOURCE, expected_range, update_band

MARKS = {"slow": "▽", "fast": "△", "very fast": "✕"}
"""Before the word of what is worth a look."""

MOST_NAMED = 4
USUAL = UPDATE_BANDS[1].low, UPDATE_BANDS[1].high
"""The band of a tensor that learns as most do, which has no colour."""


def verdict(ratio: float, optimiser: OptimConfig | None) -> str:
    """The band of an update ratio in a word, "△ fast" with its mark where that is not expected with this optimiser; a
    dash where there was no update to measure."""
    band = update_band(ratio)
    if band is None:
        return "– unknown" if math.isnan(ratio) else "✕ not finite"
    low, high = expected(optimiser)
    return band.name if low <= ratio < high else f"{MARKS[band.name]} {band.name}"


def expected(optimiser: OptimConfig | None) -> tuple[float, float]:
    """Between these an update ratio is as it should be with this optimiser."""
    return expected_range(optimiser.name if optimiser else None)


def answer(names: Sequence[str], ratios: ArrayLike, optimiser: OptimConfig | None) -> str:
    """Which tensors are out of the usual band at this step, and whether that is as it should be here; Markdown of our
    words. How the run stands is not said here: that is `tracer.diagnosis.verdict`."""
    found = dict(zip(names, np.asarray(ratios, float).tolist(), strict=True))
    known = {name: ratio for name, ratio in found.items() if not math.isnan(ratio)}
    if not known:
        return "No update was measured at this step."

    bands = {name: band.name if (band := update_band(ratio)) else "" for name, ratio in known.items()}
    slow, fast, wild, broken = (
        [name for name, band in bands.items() if band == word] for word in ("slow", "fast", "very fast", "")
    )
    if broken:
        return f"**Out of band**: the updates of {_named(broken)[0]} are not finite."
    if wild:
        those, s = _named(wild)
        most = f"{theme.fmt(max(known[name] for name in wild), 'ratio')}, usual up to {USUAL[1]:g}"
        return f"**Out of band**: {those} change{s} by a tenth or more at each step ({most})."
    if not slow and not fast:
        return f"**In band**: every update ratio is between {USUAL[0]:g} and {USUAL[1]:g}."
    if len(slow) == len(known):
        return f"**Slow**: every tensor changes by less than {USUAL[0]:g} of its norm at a step."
    low, high = expected(optimiser)
    inside = all(ratio < high for ratio in known.values()) and len(slow) < len(known) / 2
    parts = [f"{those} learn{s} {word}" for group, word in ((slow, "slowly"), (fast, "fast")) if group
             for those, s in [_named(group)]]  # fmt: skip
    return f"**{'As expected' if inside else 'Worth a look'}**: {', '.join(parts)}{_why(fast, optimiser)}."


def _why(fast: list[str], optimiser: OptimConfig | None) -> str:
    """Why tensors may be fast in this run."""
    if not fast or optimiser is None:
        return ""
    if optimiser.qk_lr_factor > 1 and all(name.endswith(("W_Q", "W_K")) for name in fast):
        return f", at {theme.fmt(optimiser.qk_lr_factor)} times the learning rate of the rest"
    return f", usual with {optimiser.name.capitalize()}" if expected(optimiser)[1] > USUAL[1] else ""


def _named(names: list[str]) -> tuple[str, str]:
    """Tensors of several layers by what they share, "W_Q and W_K", of many only the number; and the ending of a verb
    about them."""
    kinds = list(dict.fromkeys(name.split()[-1] for name in names))
    shown = kinds if len(kinds) < len(names) else names
    if len(shown) > MOST_NAMED:
        return f"{len(names)} tensors", ""
    *first, last = (f"`{name}`" for name in shown)
    return (f"{', '.join(first)} and {last}", "") if first else (last, "s")


def draw_bands() -> None:
    """The bands, from slow to very fast, with what they mean and whose rule it is."""
    for band in UPDATE_BANDS:
        edge = f"{band.low:g} to {band.high:g}"
        if band.low == 0 or math.isinf(band.high):
            edge = f"below {band.high:g}" if band.low == 0 else f"{band.low:g} and more"
        st.markdown(f"**{band.name}**, update ratio {edge}: {band.text}.")
    st.caption(UPDATE_BANDS_SOURCE)
