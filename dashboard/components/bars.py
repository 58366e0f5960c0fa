"""Probabilities of tokens, before and after, as two bars a token."""

from collections.abc import Sequence

from dashboard.components.host import Part, controlled
from tracer.pictures.payload import visible

_PART = Part("bars")


def bars(
    strings: Sequence[str], before: Sequence[float], after: Sequence[float], *, key: str, true: int | None = None
) -> None:
    """Draw a row a token; `true` is the row of the token that really follows."""
    cue = {
        "tokens": [visible(s, 24) for s in strings],
        "before": [float(p) for p in before],
        "after": [float(p) for p in after],
        "true": true,
    }
    controlled(_PART, None, cue, key=key, current=None, read=lambda v: v, on_change=None)
