"""Cached skip-trigrams of heads, and the distances at which their positions look; the computing is `tracer`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from dashboard.loading import norm_scales
from dashboard.views.circuits import data as circuits
from dashboard.views.circuits.data import TOP, Head, Key

if TYPE_CHECKING:
    from tracer.analysis.by_distance import Distances


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


def distances(key: Key, head: Head, longest: int, normed: bool) -> Distances | None:
    """Of what the positions alone attend to; None where there are too few positions."""
    from tracer.analysis.by_distance import FEWEST, distances

    return distances(circuits.positions(key, head, longest, normed)) if longest > FEWEST else None


@st.cache_data(max_entries=64, show_spinner=False)
def seen(key: Key, head: Head, distance: int) -> float:
    """What the head really gives to the token so many before, on average over held-out text."""
    import torch

    from tracer.interventions.edits import recording

    tap = f"blocks.{head[0]}.attn.hook_pattern"
    with torch.no_grad(), recording(tap) as found:
        norm_scales.model_of(key)(norm_scales.reading(key))
    return float(found[tap][:, head[1]].diagonal(-distance, dim1=-2, dim2=-1).mean())
