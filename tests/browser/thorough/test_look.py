"""Where things stand on the screen: sections side by side begin on one line."""

import pytest

from tests.browsing import visit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("address", "pairs"), [
    ("heads?run=toy&layer=1&head=0", [("All heads on this prompt", "L1H0 on this prompt")]),
    ("training?run=toy", [("Copying", "Use of context")]),
])  # fmt: skip
def test_sections_side_by_side_begin_on_one_line(page, server, address, pairs):
    visit(page, f"{server}/{address}")
    for names in pairs:
        left, right = (page.get_by_role("heading", name=name, exact=True).bounding_box() for name in names)
        assert left["x"] + 300 < right["x"] and abs(left["y"] + left["height"] - right["y"] - right["height"]) <= 2
