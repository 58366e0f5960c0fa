"""Counted tokens as bars beside what is usual, and a histogram below."""

from dashboard.components.host import Part, controlled

_PART = Part("tally")


def tally(blob: bytes, *, key: str, about: str, label: str) -> None:
    """Draw finding.tally(...); `about` explains the bars, `label` names the axis of the histogram."""
    controlled(_PART, blob, {"about": about, "label": label}, key=key, current=None, read=lambda v: v, on_change=None)
