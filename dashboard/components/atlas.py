"""The head atlas: layers x heads, one thumbnail a head, coloured by a measure; hover names, click or arrows select."""

from collections.abc import Callable, Collection, Mapping

from dashboard import theme
from dashboard.components.host import Part, controlled
from tracer.pictures.payload import version

Head = tuple[int, int]
_PART = Part("atlas")


def atlas(
    blob: bytes,
    *,
    key: str,
    selected: Head | None = None,
    measure: str | None = None,
    scales: Mapping[str, theme.Scale] | None = None,
    max_cell: int = 176,
    order: str = "index",
    lit: Collection[Head] | None = None,
    on_change: Callable[[Head], None] | None = None,
) -> Head | None:
    """Draw payload.atlas(...); returns the head in force (just chosen, else `selected`).

    `measure` names the one that colours the heads (the payload's first by default); `scales` says how each is printed.
    With `order` "measure" the strongest head of each layer comes first. Heads that are not in `lit` are dimmed.
    """
    cue = {
        "measure": measure,
        "scales": {name: scale.payload() for name, scale in (scales or {}).items()},
        "max_cell": max_cell,
        "order": order,
        "lit": sorted(lit) if lit is not None else None,
        "version": version(blob),
    }
    current = tuple(selected) if selected is not None else None
    return controlled(_PART, blob, cue, key=key, current=current, read=tuple, on_change=on_change)
