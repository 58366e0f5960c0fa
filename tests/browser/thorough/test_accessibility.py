"""The other pages under axe-core, and what a choice shows; the pictures are kept in artefacts/."""

import pytest

from dashboard.navigation import TITLES
from tests.browser.test_accessibility import PAGES, UNFOLD, readable
from tests.browsing import SIZES, findings, settle, sideways, visit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [name for name in TITLES if name not in PAGES])
def test_every_other_page_can_be_read_by_everyone(browser, server, name):
    """Wide and light, narrow and dark."""
    readable(browser, server, name, schemes=1)


def test_a_page_can_be_read_in_both_schemes_at_both_widths(browser, server):
    readable(browser, server, "ablate", schemes=2)


@pytest.mark.parametrize("view", ["heads?run=toy&layer=1&head=0&token=5", "training?run=toy&view=heatmap",
                                  "heads?run=toy&view=heatmap&find=entropy+%3E+0",
                                  "heads?run=theirs", "training?run=theirs", "gradients?run=theirs",
                                  "ablate?run=theirs",
                                  "ablate?run=toy&off=L1H0+L1H1&prompt=5+7+9+5+7"])  # fmt: skip
def test_what_a_choice_shows_can_be_read_too(page, server, view):
    """Wide, with nothing sticking out, and narrow, with all unfolded."""
    visit(page, f"{server}/{view}")
    assert sideways(page) == []
    page.set_viewport_size({"width": 390, "height": SIZES[390]})
    page.evaluate(UNFOLD)
    settle(page)
    assert findings(page) == []
    assert sideways(page) == []
