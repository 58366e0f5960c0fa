"""Cached results of the tutorials' exercises: what they read never changes, so each runs once a server."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from dashboard import theme
from tracer.pictures import atlas, pattern
from tracer.specimens.systems import Check

FEW = 8
"""Tokens up to which each head has a picture of its own, with the words beside it."""


@dataclass(frozen=True)
class Ran:
    """An exercise that was run, with its heads packed for drawing."""

    checks: tuple[Check, ...]
    atlas: bytes
    heads: tuple[bytes, ...]
    """Each head with the words of the input; none where those are many."""
    labels: tuple[str, ...]
    """A head's name and its mean row entropy."""


@st.cache_data(show_spinner="Running the exercise …")
def ran(name: str) -> Ran:
    """The exercise of a specimen."""
    import torch

    from tracer.heads.definitions import entropy
    from tracer.specimens.exercises import EXERCISES

    done = EXERCISES[name]()
    names = [theme.head_label(0, head) for head in range(len(done.pattern))]
    few = len(done.strings) <= FEW
    heads = [pattern.pack(p, done.strings, label=label) for p, label in zip(done.pattern, names, strict=True)]
    entropies = entropy(torch.from_numpy(done.pattern)).mean(-1).tolist()
    labels = [f"{label}, entropy {value:.2f}" for label, value in zip(names, entropies, strict=True)]
    return Ran(done.checks, atlas.pack(done.pattern[None], {}), tuple(heads) if few else (), tuple(labels))
