"""A small film that goes round: how the patterns of a few heads and one score of each formed over training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures import payload
from tracer.pictures.picture import Picture

LEVELS = 31
"""Of a cell's brightness: more than an eye tells apart in a cell of four pixels, and they deflate well."""


def picture(blob: bytes, *, max_size: int = 256, in_a_line: bool = False) -> Picture:
    """`pack(...)`, drawn; a pattern is at most `max_size` pixels wide. Plays by itself unless motion is unwelcome.

    `in_a_line`: scores beside the patterns, and no higher than these.
    """
    cue = {"max_size": max_size, "in_a_line": in_a_line}
    return Picture("forming", cue, blob, height=max_size + (6 if in_a_line else 170))


def pack(steps: Sequence[int], patterns: ArrayLike, scores: ArrayLike, labels: Sequence[str]) -> bytes:
    """Causal patterns [step head query_pos key_pos] and a score between 0 and 1 [step head], a label each head."""
    p, s = np.asarray(patterns, np.float32), np.asarray(scores, np.float64)
    if p.shape[:2] != (len(steps), len(labels)) or s.shape != p.shape[:2] or p.shape[2] != p.shape[3]:
        raise ValueError(
            f"{len(steps)} steps of {len(labels)} heads, but patterns of shape {p.shape} and scores of {s.shape}"
        )
    header = {"labels": list(labels), "steps": [int(step) for step in steps], "scores": s.round(3).T.tolist()}
    return payload.pack(header, cells=payload.quantise_sqrt(p, LEVELS))
