"""A run's heads as small images, cached until more of it is recorded; no model is run for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import head_scores, recorded_prompts, roles
from dashboard.loading.kept import AS_RECORDED
from tracer.measures.aliases import Head
from tracer.pictures.montage import montage, squares
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

FEW = 8
"""Heads of which each has its pattern."""
STRONGEST = 6
"""Patterns beside the squares of all."""
CELLS = 48
"""A side of a pattern."""


@dataclass(frozen=True)
class Tile:
    """A head's pattern on the first kept prompt at its last step, as a PNG."""

    head: Head
    role: str
    """What it is called at the last record; empty where it has no role."""
    image: bytes


@dataclass(frozen=True)
class Strip:
    """What a row shows of a run's heads."""

    heads: int
    roles: int
    """How many of them have one."""
    shape: tuple[int, int]
    squares: bytes
    """A square a head, a row a layer, as a PNG; empty where each has its pattern."""
    tiles: tuple[Tile, ...]


def strip(run: Run, dark: bool) -> Strip | None:
    """None of a run without heads, or of which nothing can be read."""
    try:
        return _strip(run, dark)
    except (ValueError, KeyError, IndexError, OSError, RuntimeError):
        return None


@st.cache_data(max_entries=128, show_spinner=False, hash_funcs=AS_RECORDED)
def _strip(run: Run, dark: bool) -> Strip | None:
    trace = loading.trace(run)
    if not head_scores.has_heads(trace) or not (measures := head_scores.head_measures(trace)):
        return None
    exist, named, patterns = head_scores.head_exists(trace), _roles(trace), _patterns(run)
    heads = [(int(layer), int(head)) for layer, head in np.argwhere(exist)]
    scores = head_scores.head_means(trace, "induction" if "induction" in measures else measures[0])
    strongest = sorted(heads, key=lambda head: (head not in named, -np.nan_to_num(scores[head])))
    shown = heads if len(heads) <= FEW else sorted(strongest[:STRONGEST])
    tiles = () if patterns is None else tuple(
        Tile(head, named.get(head, ""), montage(patterns[head][None, None], dark=dark)) for head in shown
    )  # fmt: skip
    whole = b"" if len(tiles) == len(heads) else squares(scores, dark=dark)
    return Strip(len(heads), len(named), (len(exist), exist.shape[1]), whole, tiles)


def _roles(trace: xr.Dataset) -> dict[Head, str]:
    """The heads that have a role at the last record."""
    found = roles.of_step(trace, None)
    labels = dict(enumerate(found.labels, 1))
    return {
        (int(at[0]), int(at[1])): labels[int(code)]
        for at, code in np.ndenumerate(found.codes)
        if int(code) in labels
    }  # fmt: skip


def _patterns(run: Run) -> np.ndarray | None:
    """Every head [layer head query_pos key_pos]; None where no patterns were kept."""
    kept = recorded_prompts.prompts(run)
    if not kept.names or not kept.steps:
        return None
    return recorded_prompts.pooled(recorded_prompts.of_prompt(run, kept.steps[-1], kept.names[0]).thumbs, CELLS, "max")
