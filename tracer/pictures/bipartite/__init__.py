"""Packing how much each head reads of every earlier one, for the part that draws heads in columns of their layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures.payload import pack


def bipartite(scores: Mapping[str, ArrayLike], mean: float, sd: float) -> bytes:
    """Scores [layer1 head1 layer2 head2] by what is read, nan where there is no edge; mean and sd of random heads."""
    found = {name: np.asarray(values, np.float32) for name, values in scores.items()}
    shapes = {name: a.shape for name, a in found.items()}
    n_layers, n_heads = next(iter(shapes.values()))[:2]
    if set(shapes.values()) != {(n_layers, n_heads) * 2}:
        raise ValueError(f"scores must all be [layer1 head1 layer2 head2] of one size, got {shapes}")
    there = np.all([np.isfinite(a) for a in found.values()], axis=0)
    header = {"kinds": list(found), "layers": n_layers, "heads": n_heads, "mean": mean, "sd": sd}
    edges = np.argwhere(there).astype(np.uint16)
    return pack(header, edges=edges, scores=np.stack([a[there] for a in found.values()]))
