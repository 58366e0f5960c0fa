"""What saves the pictures of a page as files: one for all of them, unseen."""

from dashboard.components.host import Part

_PART = Part("saver")


def saver() -> None:
    """Mount it once on a page."""
    _PART(key="saver", data={})
