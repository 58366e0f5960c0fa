"""Light or dark: a page that turns is drawn again, since charts of Plotly have the colours that Python gave them."""

from dashboard import theme
from dashboard.components.host import Part

_PART = Part("scheme")


def scheme() -> None:
    """Mount it once on a page."""
    _PART(key="scheme", data="dark" if theme.is_dark() else "light", on_turned_change=lambda: None)
