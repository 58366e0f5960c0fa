"""Heads in columns of their layers, joined by what they read of earlier ones: a click takes a head into focus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures import payload
from tracer.pictures.picture import Head, Picture, as_head


def picture(blob: bytes, *, into: str, roles: Sequence[Sequence[str]], selected: Head, most: int = 60) -> Picture:
    """`pack(...)`, the edges of one kind; `roles` [layer head] are words below the heads' labels; picks a head.

    Of edges that stand out and do not touch the selected head, the `most` strongest are drawn.
    """
    cue = {"into": into, "roles": [list(row) for row in roles], "most": most}
    heads = len(roles[0])
    return Picture("bipartite", cue, blob, selected, as_head, 60 + heads * min(84, 440 // heads))


def pack(scores: Mapping[str, ArrayLike], mean: float, sd: float) -> bytes:
    """Scores [layer1 head1 layer2 head2] by what is read, nan where there is no edge; mean and sd of random heads."""
    found = {name: np.asarray(values, np.float32) for name, values in scores.items()}
    shapes = {name: a.shape for name, a in found.items()}
    n_layers, n_heads = next(iter(shapes.values()))[:2]
    if set(shapes.values()) != {(n_layers, n_heads) * 2}:
        raise ValueError(f"scores must all be [layer1 head1 layer2 head2] of one size, got {shapes}")
    there = np.all([np.isfinite(a) for a in found.values()], axis=0)
    header = {"kinds": list(found), "layers": n_layers, "heads": n_heads, "mean": mean, "sd": sd}
    edges = np.argwhere(there).astype(np.uint16)
    return payload.pack(header, edges=edges, scores=np.stack([a[there] for a in found.values()]))
