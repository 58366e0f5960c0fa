"""Every page under axe-core, in light and dark, wide and narrow; the pictures are kept in artefacts/."""

import re
from itertools import islice

import pytest

from dashboard.navigation import TITLES
from tests.browsing import MOVED, SIZES, findings, in_both_schemes, photograph, settle, sideways, tab, visit
from tracer.pictures.colours import lightness

pytestmark = pytest.mark.slow
THOROUGH = {"runs", "heads", "ablate"}
"""Pages with a control of every kind: seen in both schemes at both widths. Others are seen wide and light, narrow and
dark."""
PAINTED = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
UNFOLD = """() => {
  const open = (root) => root.querySelectorAll("*").forEach((node) => {
    if (node.matches("details:not([open]) > summary")) node.click();
    if (node.shadowRoot) open(node.shadowRoot);
  });
  open(document);
}"""


@pytest.mark.parametrize("name", TITLES)
def test_every_page_can_be_read_by_everyone(browser, server, name):
    """Loaded wide and made narrow, as by who turns a screen, with all unfolded then: a page that was loaded narrow is
    asked by others."""
    with tab(browser, server, color_scheme="light") as page:
        page.add_init_script(MOVED)
        visit(page, f"{server}/{name}?run=toy")
        assert round(page.evaluate("moved"), 2) <= 0.2
        for width, height in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            if width == 390:
                page.evaluate(UNFOLD)
            for scheme in islice(in_both_schemes(page, width), 2 if name in THOROUGH else 1):
                photograph(page, f"{name}-{scheme}-{width}")
                assert findings(page) == []
                assert sideways(page) == []
                painted = page.evaluate(PAINTED)
                red, green, blue = (int(value) for value in re.findall(r"\d+", painted)[:3])
                assert (lightness(f"#{red:02x}{green:02x}{blue:02x}") > 0.5) == (scheme == "light")


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
