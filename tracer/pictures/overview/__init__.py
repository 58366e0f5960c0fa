"""A whole pattern in pooled blocks, and the window of it that is shown exactly: drag, click or keys move it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tracer.measures.aliases import Head
from tracer.pictures import payload
from tracer.pictures.picture import Picture

Window = tuple[int, int, int, int]
"""query_start, query_stop, key_start, key_stop."""


def picture(
    blob: bytes, *, window: Window | None, head: Head | None = None, largest: int = 256, max_size: int = 640
) -> Picture:
    """`pack(...)`, drawn; picks a window.

    A window has at most `largest` tokens a side and lies inside the pattern; of a causal one, half its rows or more see
    its first key. With `head`, the one that is drawn, a scrubber on the page drives the picture.
    """
    cue = {"largest": largest, "max_size": max_size, "head": head and list(head)}
    return Picture("overview", cue, blob, window, lambda picked: tuple(map(int, picked)), max_size + 74)


def pack(
    pooled: ArrayLike,
    *,
    n_query: int,
    n_key: int,
    factor_q: int,
    factor_k: int,
    label: str = "",
    causal: bool = True,
    pool: str = "max",
) -> bytes:
    """A whole pattern of n_query x n_key tokens as blocks of factor_q x factor_k, each its largest or its mean share.

    Means are small (1 / n_key where attention is even), so they are coded and coloured up to the largest of them.
    """
    p = np.asarray(pooled, np.float32)
    blocks = (-(-n_query // factor_q), -(-n_key // factor_k))
    if p.shape != blocks:
        raise ValueError(
            f"pooled has shape {p.shape}; {n_query} x {n_key} tokens in blocks of {factor_q} x {factor_k} make {blocks}"
        )
    if pool not in ("max", "mean"):
        raise ValueError(f"pool={pool!r}; known: 'max', 'mean'")
    top = float(np.nanmax(p, initial=0)) or 1.0 if pool == "mean" else 1.0
    header = {"label": label, "causal": causal, "pool": pool, "sizes": [n_query, n_key],
              "factors": [factor_q, factor_k], "top": top}  # fmt: skip
    return payload.pack(header, blocks=payload.quantise_sqrt(p / top))
