"""Every head on one prompt as pictures read it: small, by window, or in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracer.measures.aliases import Head

Pool = Literal["max", "mean"]


@dataclass(frozen=True)
class PromptPatterns:
    """Every head on one prompt, wherever it comes from: a model that reads it now, or a run that recorded it."""

    key: tuple[object, ...]
    """Run and prompt: what a window into it belongs to."""
    step: int
    """Of training; 0 where there is none."""
    strings: list[str]
    """Of the query tokens, one each."""
    causal: list[bool]
    """By layer."""
    sizes: list[tuple[int, int]]
    """Query and key positions, by layer."""
    names: list[str]
    """Path of each layer's module; empty for our own models."""
    thumbs: np.ndarray
    """[layer head rows cols]; nan where a layer has fewer heads than others."""
    window: Callable[[int, int, slice, slice], np.ndarray]
    """window(layer, head, rows, cols): exact attention [query_pos key_pos]."""
    overview: Callable[[int, int, int, Pool], np.ndarray]
    """overview(layer, head, size, pool): the whole pattern in at most size x size blocks."""
    off: tuple[Head, ...] = ()
    """Heads that wrote nothing while it was read."""

    @property
    def look(self) -> tuple[object, ...]:
        """Run, prompt and heads off: what is made of these patterns belongs to it, and to the step."""
        return (*self.key, self.off)

    def queries(self, layer: int) -> list[str]:
        """The query tokens: known by position only where there are more or fewer than the prompt has."""
        n_query = self.sizes[layer][0]
        return self.strings if n_query == len(self.strings) else [str(i) for i in range(n_query)]

    def keys(self, layer: int) -> list[str]:
        """The attended tokens: of cross attention only their positions are known."""
        n_query, n_key = self.sizes[layer]
        own = n_query == n_key == len(self.strings) and not (self.names and self.names[layer].endswith("(cross)"))
        return self.strings if own else [str(i) for i in range(n_key)]
