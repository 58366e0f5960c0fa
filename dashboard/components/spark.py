"""A small line without axes: how a value went so far."""

from collections.abc import Sequence

from dashboard.components.host import Part, controlled

_PART = Part("spark")


def spark(values: Sequence[float], *, key: str, label: str, share: float = 1.0, height: int = 44) -> None:
    """Draw values named `label` from left to right, over `share` of the width when more is still to come."""
    cue = {"values": [float(v) for v in values], "label": label, "share": share, "height": height}
    controlled(_PART, None, cue, key=key, current=None, read=lambda v: v, on_change=None)
