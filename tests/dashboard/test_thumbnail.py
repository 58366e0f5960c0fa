"""A chart in small: its places, and what a logarithm has no place for."""

from xml.etree import ElementTree

from dashboard.views.specimens.thumbnail import HEIGHT, MARGIN, WIDTH, thumbnail


def test_curves_and_levels_have_their_places() -> None:
    chart = {"log": "y", "curves": {"a": [[0, 10], [1, 100]]}, "levels": {"ten": 10.0, "none": 0.0}}
    level, curve = [path.attrib for path in ElementTree.fromstring(thumbnail(chart, ["red"], "grey"))]
    left, right, low, high = MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN, MARGIN
    assert curve["d"] == f"M{left:.1f} {low:.1f}L{right:.1f} {high:.1f}" and "red" in curve["style"]
    assert level["d"] == f"M{left:.1f} {HEIGHT / 2:.1f}L{right:.1f} {HEIGHT / 2:.1f}" and "grey" in level["style"]


def test_one_value_is_drawn_in_the_middle() -> None:
    chart = {"log": "", "curves": {"a": [[3], [7]]}, "levels": {}}
    (path,) = ElementTree.fromstring(thumbnail(chart, ["red"], "grey"))
    assert path.attrib["d"] == f"M{WIDTH / 2:.1f} {HEIGHT / 2:.1f}"
