"""Where things stand on the screen: sections side by side on one line, the tour's card in view."""

import pytest
from playwright.sync_api import expect

from tests.browsing import settle, visit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("address", "names"), [
    ("heads?run=toy&layer=1&head=0", ("All heads on this prompt", "L1H0 on this prompt")),
    ("training?run=toy", ("Loss", "Copying")),
    ("training?run=toy", ("Use of context", "Loss by position")),
])  # fmt: skip
def test_sections_side_by_side_begin_on_one_line(page, server, address, names):
    visit(page, f"{server}/{address}")
    left, right = (page.get_by_role("heading", name=name, exact=True).bounding_box() for name in names)
    assert left["x"] + 300 < right["x"] and abs(left["y"] + left["height"] - right["y"] - right["height"]) <= 2


@pytest.mark.parametrize(("width", "stays"), [(1440, True), (390, False)])
def test_the_card_of_the_tour_stays_in_view_where_there_is_room(page, server, width, stays):
    page.set_viewport_size({"width": width, "height": 900})
    visit(page, f"{server}/heads?run=toy&tour=3&layer=1&head=0")
    page.get_by_role("heading", name="What each token looks at").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollBy(0, 600)")
    settle(page)
    card = expect(page.locator(".st-key-tour"))
    (card.to_be_in_viewport if stays else card.not_to_be_in_viewport)()
