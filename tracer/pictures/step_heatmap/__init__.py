"""A heatmap of heads x steps: a row a head, sorted by when it changed; click or arrows select."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.measures.change_points import phase_changes
from tracer.pictures import payload
from tracer.pictures.picture import Picture
from tracer.pictures.scales import Scale, head_label

NEVER = -1
"""The change of a head whose curve has no `phase_change`, or one of less than SEEN."""
SEEN = 0.05
"""Share of what all lines span: smaller moves can hardly be told by colour."""


def picture(
    blob: bytes,
    *,
    selected: str | None = None,
    step: float | None = None,
    log_x: bool = False,
    scale: Scale | None = None,
    height: int = 320,
) -> Picture:
    """`pack(...)`, drawn; picks a label, or None.

    A vertical line marks `step`. `height` is shared by the rows, but no row is thinner than a pixel.
    """
    cue = {"step": step, "log_x": log_x, "scale": (scale or Scale("Value", digits=3)).payload(), "height": height}
    return Picture("step_heatmap", cue, blob, selected, lambda picked: picked or None, height + 90)


def midpoints(steps: ArrayLike, values: ArrayLike) -> NDArray[np.int64]:
    """The step at which each line [line step] is halfway through its change, or NEVER.

    Source: `tracer.measures.change_points`, whose midpoint it is; each line is one of as many as there are.
    """
    x, y = np.asarray(steps), np.asarray(values, np.float64)
    least = SEEN * float(np.nanmax(y) - np.nanmin(y)) if np.isfinite(y).any() else 0.0
    found = phase_changes(x, y, least, tried=max(1, len(y)))
    return np.array([change.midpoint if change else NEVER for change in found], np.int64)


def by_change(changed: ArrayLike, values: ArrayLike) -> NDArray[np.int64]:
    """Lines in the order in which they changed, of those at one step the largest move first; NEVER comes last."""
    t, v = np.asarray(changed), np.asarray(values, np.float64)
    measured = np.isfinite(v)
    v = np.where(measured, v, 0.0)
    first, last = measured.argmax(axis=1), v.shape[1] - 1 - measured[:, ::-1].argmax(axis=1)
    rows = np.arange(len(v))
    move = np.abs(v[rows, last] - v[rows, first])
    return np.lexsort((rows, -move, t, t == NEVER))


def pack(steps: ArrayLike, values: ArrayLike) -> bytes:
    """A measure [step layer head], packed; heads that were never measured are left out."""
    x, y = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if y.ndim != 3 or len(y) != x.size:
        raise ValueError(f"values must be [step layer head] over {x.size} steps, got shape {y.shape}")
    n_heads = y.shape[2]
    lines = np.where(np.isfinite(y), y, np.nan).reshape(x.size, -1).T
    there = np.flatnonzero(np.isfinite(lines).any(axis=1))
    kept = np.isfinite(lines).any(axis=0)  # a step at which nothing was measured would be an empty stripe
    x, lines = x[kept], lines[there][:, kept]
    lo, hi = payload.ends(lines)
    changed = midpoints(x, lines)
    header = {
        "labels": [head_label(int(i) // n_heads, int(i) % n_heads) for i in there],
        "groups": [int(i) // n_heads for i in there],
        "changes": changed.tolist(),
        "order": by_change(changed, lines).tolist() if len(there) else [],
        "lo": lo,
        "hi": hi,
    }
    return payload.pack(header, steps=x, cells=payload.quantise_linear(lines, lo, hi))
