"""How an update ratio reads, in an icon and a word, and where that reading comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import streamlit as st
from numpy.typing import ArrayLike

from tracer.config import OptimConfig
from tracer.measures import UPDATE_BANDS, UPDATE_BANDS_SOURCE, expected_range, update_band

ICONS = {"slow": "▽", "usual": "✓", "fast": "△", "very fast": "✕"}

MOST_NAMED = 4


def verdict(ratio: float) -> str:
    """'✓ usual', or a dash where there was no update to measure."""
    band = update_band(ratio)
    if band is None:
        return "– unknown" if math.isnan(ratio) else "✕ not finite"
    return f"{ICONS[band.name]} {band.name}"


def answer(names: Sequence[str], ratios: ArrayLike, optimiser: OptimConfig | None) -> str:
    """Are the tensors in band at this step, which are not, and whether that is as it should be here; Markdown of our
    words. How the run stands is not said here: that is `tracer.diagnosis.verdict`."""
    found = dict(zip(names, np.asarray(ratios, float).tolist(), strict=True))
    known = {name: ratio for name, ratio in found.items() if not math.isnan(ratio)}
    if not known:
        return "No update was measured at this step."

    def those(word: str) -> list[str]:
        return [name for name, ratio in known.items() if verdict(ratio).partition(" ")[2] == word]

    usual, slow, fast, wild, broken = map(those, ("usual", "slow", "fast", "very fast", "not finite"))
    size = f"{len(usual)} of {len(known)} tensors in band"
    outside = [f"{_named(group)} {word}" for group, word in ((slow, "slow"), (fast, "fast")) if group]
    rest = f"; {', '.join(outside)}" if outside else ""
    if broken or wild:
        worst = " and ".join(filter(None, [
            f"{_named(broken)} not finite" if broken else "", f"{_named(wild)} very fast: a tenth of the weights or "
            "more is replaced at every step" if wild else ""]))  # fmt: skip
        return f"**✕ Out of band**: {size}; {worst}. A smaller learning rate usually helps."
    if len(slow) == len(known):
        return "**△ Slow**: every tensor changes by less than a ten-thousandth of its norm at a step."
    low, high = expected_range(optimiser.name if optimiser else None)
    inside = all(ratio < high for ratio in known.values()) and len(slow) < len(known) / 2
    if not inside:
        return f"**△ Worth a look**: {size}{rest}."
    return f"**✓ {'As expected' if outside else 'In band'}**: {size}{rest}{_why(fast, optimiser)}."


def _why(fast: list[str], optimiser: OptimConfig | None) -> str:
    """Why tensors may be fast in this run."""
    if not fast or optimiser is None:
        return ""
    usual = f", as is usual with {optimiser.name.capitalize()}"
    if optimiser.qk_lr_factor > 1 and all(name.endswith(("W_Q", "W_K")) for name in fast):
        return f"{usual}: this run gives W_Q and W_K {optimiser.qk_lr_factor:.1f} times the learning rate of the others"
    return usual


def _named(names: list[str]) -> str:
    """Tensors of several layers by what they share: "W_Q and W_K"; of many only the number."""
    kinds = list(dict.fromkeys(name.split()[-1] for name in names))
    shown = kinds if len(kinds) < len(names) else names
    if len(shown) > MOST_NAMED:
        return f"{len(names)} tensors"
    *first, last = (f"`{name}`" for name in shown)
    return f"{', '.join(first)} and {last}" if first else last


def draw_bands() -> None:
    """The bands, from slow to very fast, with what they mean and whose rule it is."""
    with st.expander("How to read the pace", expanded=False):
        for band in UPDATE_BANDS:
            edge = f"{band.low:g} to {band.high:g}"
            if band.low == 0 or math.isinf(band.high):
                edge = f"below {band.high:g}" if band.low == 0 else f"{band.low:g} and more"
            st.markdown(f"**{ICONS[band.name]} {band.name}**, update ratio {edge}: {band.text}.")
        st.caption(UPDATE_BANDS_SOURCE)
