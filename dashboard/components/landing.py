"""Links to a place of the page: what is folded there opens, and the place stays in view while the page comes."""

from dashboard.components.host import Part

_PART = Part("landing")


def landing() -> None:
    """Mount it once on a page."""
    _PART(key="landing", data=0)
