"""A heatmap of heads x steps: a row a head, by layer or by when it changed; click or arrows select."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    span: tuple[int, int] | None = None,
    notes: Mapping[str, str] | None = None,
    note: str = "",
    ticks: Sequence[float] | None = None,
    bare: bool = False,
) -> Picture:
    """`pack(...)`, drawn; picks a label, or None.

    A vertical line marks `step`. `height` is shared by the rows, but no row is thinner than a pixel. With `notes`,
    words by label, steps stand as far from the sides as those of a timeline above, words left of them and values
    right. `span`: the first and the last step of the axis, by default those that were measured. `note` is said beside
    the colours, and `ticks` are their numbers; `bare`: without these.
    """
    cue = {
        "step": step, "log_x": log_x, "scale": (scale or Scale("Value", digits=3)).payload(), "height": height,
        "span": span, "notes": notes, "note": note, "ticks": ticks, "bare": bare,
    }  # fmt: skip
    room = height + (90 if notes is None else 58)
    return Picture("step_heatmap", cue, blob, selected, lambda picked: picked or None, room)


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


def pack(steps: ArrayLike, values: ArrayLike, *, dated: bool = True, log: bool = False) -> bytes:
    """A measure [step layer head], packed; heads that were never measured are left out.

    `dated`: with the step at which each changed, by which rows are sorted. With `log` colour is a power of ten.
    """
    x, y = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if y.ndim != 3 or len(y) != x.size:
        raise ValueError(f"values must be [step layer head] over {x.size} steps, got shape {y.shape}")
    n_heads = y.shape[2]
    y = np.where(np.isfinite(y) & ((y > 0) | (not log)), y, np.nan)
    lines = (np.log10(y) if log else y).reshape(x.size, -1).T
    there = np.flatnonzero(np.isfinite(lines).any(axis=1))
    kept = np.isfinite(lines).any(axis=0)  # a step at which nothing was measured would be an empty stripe
    x, lines = x[kept], lines[there][:, kept]
    lo, hi = payload.ends(lines)
    changed = midpoints(x, lines) if dated else np.full(len(lines), NEVER)
    header = {
        "labels": [head_label(int(i) // n_heads, int(i) % n_heads) for i in there],
        "groups": [int(i) // n_heads for i in there],
        "changes": changed.tolist() if dated else [],
        "order": by_change(changed, lines).tolist() if dated and len(there) else [*range(len(there))],
        "log": log,
        "lo": lo,
        "hi": hi,
    }
    return payload.pack(header, steps=x, cells=payload.quantise_linear(lines, lo, hi))
