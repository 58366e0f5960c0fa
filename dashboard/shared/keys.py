"""The help with keys, in the bar on top where it covers nothing."""

from __future__ import annotations

from dashboard import state
from dashboard.components.keys import keys


def draw_keys() -> None:
    """Mount it; the page goes to its top when the tour's step changes, where the card is."""
    keys(top=state.read().tour)
