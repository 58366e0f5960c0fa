"""Every page under axe-core, in light and dark, wide and narrow; the pictures are kept in artefacts/."""

import re

import pytest

from dashboard.navigation import TITLES
from tests.browsing import SIZES, findings, in_both_schemes, photograph, settle, sideways, tab, visit
from tracer.pictures.colours import lightness

pytestmark = pytest.mark.slow
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
    """Loaded wide and made narrow, as by who turns a screen: a page that was loaded narrow is asked by others."""
    with tab(browser, server, color_scheme="light") as page:
        visit(page, f"{server}/{name}?run=toy")
        for width, height in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            for scheme in in_both_schemes(page, width):
                photograph(page, f"{name}-{scheme}-{width}")
                assert findings(page) == []
                assert sideways(page) == []
                painted = page.evaluate(PAINTED)
                red, green, blue = (int(value) for value in re.findall(r"\d+", painted)[:3])
                assert (lightness(f"#{red:02x}{green:02x}{blue:02x}") > 0.5) == (scheme == "light")


@pytest.mark.parametrize("view", ["runs", "heads?run=toy&layer=1&head=0&token=5", "training?run=toy&view=heatmap",
                                  "heads?run=theirs", "gradients?run=theirs",
                                  "ablate?run=toy&off=L1H0+L1H1&prompt=5+7+9+5+7"])  # fmt: skip
@pytest.mark.parametrize("width", SIZES)
def test_what_is_folded_away_can_be_read_too(page, server, view, width):
    page.set_viewport_size({"width": width, "height": SIZES[width]})
    visit(page, f"{server}/{view}")
    page.evaluate(UNFOLD)
    settle(page)
    assert findings(page) == []
    assert sideways(page) == []
