"""Heads in columns of their layers, joined by what they read of earlier ones: a click takes a head into focus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tracer.measures.aliases import Head
from tracer.pictures import payload
from tracer.pictures.picture import Picture, as_head

ALL = 2**14
"""Edges that are sent whole: 12 layers of 12 heads have 9,504, 32 of 32 have 507,904 (10 MB)."""
OWN, OTHERS = 4, 250
"""Of more: the strongest that each head reads, those that read it, and the strongest of all."""
ROW, ALL_ROWS, LEAST = 72, 440, 20
"""Pixels: a head with its role, all heads of a layer where they are many, and the least of one."""


def picture(
    blob: bytes, *, into: str, roles: Sequence[Sequence[str]], selected: Head, most: int = 60,
    off: Iterable[Sequence[int]] = (),
) -> Picture:  # fmt: skip
    """`pack(...)`, the edges of one kind; `roles` [layer head] are words below the heads' labels; picks a head.

    Of edges that stand out and do not touch the selected head, the `most` strongest are drawn. Heads in `off` are
    hatched.
    """
    gone = [list(map(int, head)) for head in off]
    cue: dict[str, Any] = {"into": into, "roles": [list(row) for row in roles], "most": most, "off": gone}
    heads = len(roles[0])
    cue["row"] = max(LEAST, min(ROW, ALL_ROWS // heads))
    return Picture("bipartite", cue, blob, selected, as_head, 60 + heads * cue["row"])


def pack(scores: Mapping[str, ArrayLike], mean: float, sd: float, edge: float) -> bytes:
    """Scores [layer1 head1 layer2 head2] by what is read, nan where there is no edge; mean and sd of random heads, and
    the score from which on a pair stands out.

    All edges up to ALL; of more, what a reader can be shown: the strongest of every head and of all (`strongest`).
    """
    found = {name: np.asarray(values, np.float32) for name, values in scores.items()}
    shapes = {name: a.shape for name, a in found.items()}
    n_layers, n_heads = next(iter(shapes.values()))[:2]
    if set(shapes.values()) != {(n_layers, n_heads) * 2}:
        raise ValueError(f"scores must all be [layer1 head1 layer2 head2] of one size, got {shapes}")
    there = np.all([np.isfinite(a) for a in found.values()], axis=0)
    total, sure = int(there.sum()), [int((a[there] > edge).sum()) for a in found.values()]
    if total > ALL:
        there = np.any([strongest(np.where(there, a, -np.inf)) for a in found.values()], axis=0)
    header = {"kinds": list(found), "layers": n_layers, "heads": n_heads, "mean": mean, "sd": sd, "edge": edge,
              "total": total, "sure": sure}  # fmt: skip
    edges = np.argwhere(there).astype(np.uint16)
    return payload.pack(header, edges=edges, scores=np.stack([a[there] for a in found.values()]))


def strongest(scores: np.ndarray) -> np.ndarray:
    """Which of scores [layer1 head1 layer2 head2], -inf where there is no edge, are among the OTHERS strongest of all,
    or the OWN strongest of the head that reads or of the one that is read."""
    n_layers, n_heads = scores.shape[:2]
    flat = scores.reshape(n_layers * n_heads, -1)
    kept = flat >= np.partition(flat, -OTHERS, axis=None)[-OTHERS]
    for axis in (0, 1):
        edge = np.take(np.partition(flat, -OWN, axis=axis), [-OWN], axis=axis)
        kept |= flat >= edge
    return (kept & np.isfinite(flat)).reshape(scores.shape)
