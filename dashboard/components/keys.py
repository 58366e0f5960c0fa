"""The keys of every page: a small button that lists them, and what `?` and `/` do anywhere."""

from dashboard.components.host import Part, controlled

_PART = Part("keys")


def keys(top: int) -> None:
    """Mount the button; the page scrolls to its top when `top` becomes another number."""
    controlled(_PART, None, {"top": top}, key="keys", current=None, read=lambda value: value, on_change=None)
