"""A picture as a value: what any host (a page of the dashboard, a notebook, a file) needs to mount it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tracer.measures.aliases import Head


def as_picked(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Picture:
    """Heavy bytes that stay, a light cue that changes, and the choice in force, for one script."""

    part: str
    """The name of its folder, its script and its style."""
    cue: Mapping[str, Any] = field(default_factory=dict)
    """JSON."""
    blob: bytes | None = None
    """Arrays, as `payload.pack` packs them."""
    value: Any = None
    """What is chosen in it now."""
    read: Callable[[Any], Any] = as_picked
    """The choice, of what the reader picks in the browser, which is JSON."""
    height: int = 0
    """Pixels kept free until it is drawn, about as many as it will take; 0: none."""


def as_head(picked: Any) -> Head:
    """A head out of JSON."""
    return int(picked[0]), int(picked[1])


def as_cell(picked: Any) -> tuple[int, ...] | None:
    """A cell out of JSON; None where one was let go."""
    return tuple(picked) if picked else None


def as_json(values: ArrayLike) -> list[Any]:
    """Values as JSON, nested as they are: null where nothing was measured."""
    v = np.asarray(values, np.float64)
    shown = v.astype(object)
    shown[~np.isfinite(v)] = None
    return shown.tolist()


def as_grid(values: ArrayLike) -> list[list[float | None]]:
    """Values [layer head] as JSON."""
    if np.ndim(values) != 2:
        raise ValueError(f"values must be [layer head], got shape {np.shape(values)}")
    return as_json(values)
