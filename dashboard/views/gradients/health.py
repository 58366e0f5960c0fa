"""How an update ratio reads, in an icon and a word, and where that reading comes from."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import streamlit as st
from numpy.typing import ArrayLike

from tracer.measures import UPDATE_BANDS, UPDATE_BANDS_SOURCE, update_band

ICONS = {"slow": "▽", "usual": "✓", "fast": "△", "very fast": "✕"}


def verdict(ratio: float) -> str:
    """'✓ usual', or a dash where there was no update to measure."""
    band = update_band(ratio)
    if band is None:
        return "– unknown" if math.isnan(ratio) else "✕ not finite"
    return f"{ICONS[band.name]} {band.name}"


def count(ratios: ArrayLike) -> str:
    """'✓ 13 usual, ▽ 1 slow': how many tensors are in each band, fastest first."""
    found = Counter(verdict(float(ratio)) for ratio in np.asarray(ratios, float))
    order = [*(f"{ICONS[band.name]} {band.name}" for band in reversed(UPDATE_BANDS)), *found]
    return ", ".join("{} {} {}".format(*_split(name, found[name])) for name in dict.fromkeys(order) if found[name])


def _split(name: str, number: int) -> tuple[str, int, str]:
    icon, _, word = name.partition(" ")
    return icon, number, word


def draw_bands() -> None:
    """The bands, from slow to very fast, with what they mean and whose rule it is."""
    with st.expander("How to read the pace", expanded=False):
        for band in UPDATE_BANDS:
            edge = (
                f"below {band.high:g}"
                if band.low == 0
                else f"{band.low:g} and more"
                if math.isinf(band.high)
                else f"{band.low:g} to {band.high:g}"
            )
            st.markdown(f"**{ICONS[band.name]} {band.name}**, u {edge}: {band.text}.")
        st.caption(UPDATE_BANDS_SOURCE)
