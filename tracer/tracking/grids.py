"""A measure of all heads as a picture."""

from __future__ import annotations

import numpy as np

from tracer.pictures.colours import palette

CELL, GAP, COLOURS = 14, 2, 33
NONE = (255, 255, 255)
"""Where a layer has no such head, and between heads."""


def grid(x: np.ndarray, high: float | None = None) -> np.ndarray:
    """x [layer head] as RGB bytes [height width 3], layer 0 at the bottom; amber from 0 to `high` (or the highest)."""
    colours = np.array(
        [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in palette("score", COLOURS)["light"]], np.uint8
    )
    top = high or max(float(np.nanmax(x)), 1e-9)
    index = (np.nan_to_num(np.clip(x / top, 0, 1)) * (COLOURS - 1)).round().astype(int)
    cells = np.where(np.isnan(x)[..., None], np.uint8(255), colours[index])[::-1]
    picture = np.full((x.shape[0] * (CELL + GAP), x.shape[1] * (CELL + GAP), 3), NONE, np.uint8)
    for i in range(CELL):
        for j in range(CELL):
            picture[i :: CELL + GAP, j :: CELL + GAP] = cells
    return picture
