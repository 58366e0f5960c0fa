"""Heads as a table ranked by one measure: a click takes a head into focus, or another measure to rank by."""

from collections.abc import Callable, Mapping

from dashboard import theme
from dashboard.components.host import Part, controlled

Head = tuple[int, int]
_PART = Part("ranking")


def ranking(
    blob: bytes,
    *,
    key: str,
    selected: Head,
    measure: str,
    scales: Mapping[str, theme.Scale],
    on_change: Callable[[Head, str], None],
) -> None:
    """Draw finding.ranking(...), one scale for each of its measures."""
    cue = {"scales": {name: scale.payload() for name, scale in scales.items()}}

    def read(value: dict[str, object]) -> tuple[Head, str]:
        layer, head = value["head"]  # pyright: ignore[reportGeneralTypeIssues]
        return (int(layer), int(head)), str(value["measure"])

    controlled(_PART, blob, cue, key=key, current={"head": list(selected), "measure": measure}, read=read,
               on_change=lambda picked: on_change(*picked))  # fmt: skip
