"""Pages under axe-core, in light and dark, wide and narrow; the pictures are kept in artefacts/."""

import re
from itertools import islice

import pytest

from tests.browsing import MOVED, SIZES, findings, in_both_schemes, photograph, sideways, tab, visit
from tracer.pictures.colours import lightness

pytestmark = pytest.mark.slow
PAGES = ("runs", "heads", "ablate")
"""Those with a control of every kind."""
PAINTED = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
UNFOLD = """() => {
  const open = (root) => root.querySelectorAll("*").forEach((node) => {
    if (node.matches("details:not([open]) > summary")) node.click();
    if (node.shadowRoot) open(node.shadowRoot);
  });
  open(document);
}"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_by_everyone(browser, server, name):
    """Wide and light, narrow and dark."""
    readable(browser, server, name, schemes=1)


def readable(browser, server, name, schemes):
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
            for scheme in islice(in_both_schemes(page, width), schemes):
                photograph(page, f"{name}-{scheme}-{width}")
                assert findings(page) == []
                assert sideways(page) == []
                painted = page.evaluate(PAINTED)
                red, green, blue = (int(value) for value in re.findall(r"\d+", painted)[:3])
                assert (lightness(f"#{red:02x}{green:02x}{blue:02x}") > 0.5) == (scheme == "light")
