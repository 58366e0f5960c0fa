"""Cached skip-trigrams of heads, and the distances at which their positions look; the computing is `tracer`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from dashboard.loading import norm_scales
from dashboard.pages.circuits import data as circuits
from dashboard.pages.circuits.data import FEWEST, TOP, Head, Key


@dataclass(frozen=True)
class Trigram:
    """A ... B, then C, as token ids; B and C the best first."""

    source: int
    looks: list[int]
    raises: list[int]
    value: float
    """What the first B and the first C make, in logits above the mean."""
    share: float
    """What A gets of the attention of the first B."""


@st.cache_data(max_entries=64, show_spinner="Streaming the skip-trigrams …")
def trigrams(key: Key, head: Head, places: tuple[float, ...]) -> list[list[Trigram]]:
    """The strongest, the largest first, for each share that the place of A would get by itself."""
    import torch

    from tracer.analysis.skip_trigrams import sources, strongest

    with torch.no_grad():
        found = sources(*circuits.halves(key, head))
    lists = []
    for place in places:
        best = strongest(found, place, TOP)
        lists.append([
            Trigram(source, looks, raises, value, share)
            for source, looks, raises, value, share in zip(
                best.sources.tolist(), best.looks.tolist(), best.raises.tolist(), best.values.tolist(),
                best.shares[:, 0].tolist(), strict=True,
            )
        ])  # fmt: skip
    return lists


@dataclass(frozen=True)
class Distances:
    """What the positions alone give to the position so many before [distance], on average; each over FEWEST rows."""

    shares: np.ndarray
    even: np.ndarray
    """The same of a head without a preference."""

    @property
    def best(self) -> int:
        """The distance that gets most, but for 0, the token itself."""
        return 1 + int(self.shares[1:].argmax())

    @property
    def prefers(self) -> bool:
        """Has it a favourite: at least twice what a head without a preference gives it? Ours."""
        return bool(self.shares[self.best] >= 2 * self.even[self.best])


def distances(key: Key, head: Head, longest: int, normed: bool) -> Distances | None:
    """None where there are too few positions."""
    if longest <= FEWEST:
        return None
    n = np.arange(longest - FEWEST + 1)
    pattern = circuits.positions(key, head, longest, normed)
    even = np.tril(np.ones_like(pattern)) / np.arange(1, longest + 1)[:, None]
    return Distances(*(np.array([one.diagonal(-d).mean() for d in n]) for one in (pattern, even)))


@st.cache_data(max_entries=64, show_spinner=False)
def seen(key: Key, head: Head, distance: int) -> float:
    """What the head of our model really gives to the token so many before, on average over held-out text."""
    import torch

    from tracer.interventions.edits import recording

    tap = f"blocks.{head[0]}.attn.hook_pattern"
    with torch.no_grad(), recording(tap) as found:
        norm_scales.ours(key)(norm_scales.reading(key))
    return float(found[tap][:, head[1]].diagonal(-distance, dim1=-2, dim2=-1).mean())
