"""The keys of every page: a small button in the bar on top that lists them, and what `?` and `/` do anywhere."""

from __future__ import annotations

from dashboard import state
from dashboard.shared.mount import draw
from tracer.pictures.picture import Picture


def draw_keys() -> None:
    """Mount it; the page goes to its top when the tour's step changes, where the card is."""
    draw(Picture("keys", {"top": state.read().tour}), key="keys")
