"""Specimens in a browser: cards of real runs that everybody can read, and the ways from them to other pages."""

import re

import pytest
from playwright.sync_api import expect

from tests.browsing import ROOT, SIZES, findings, photograph, query, served, settle, sideways, tab, visit
from tests.dashboard.test_specimens import narrow
from tracer.presets import preset
from tracer.training import train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def specimens(tmp_path_factory):
    """The address of the dashboard over a collapsed head, a healthy one and four."""
    folder = tmp_path_factory.mktemp("specimens")
    for name in ("single-head-unscaled", "single-head-residual", "multi-head"):
        config = narrow(preset(f"{name}-small").config, folder / "checkpoints" / name, 20)
        train(config, preset=f"{name}-small", quiet=True)
    with served(ROOT / "dashboard" / "app.py", folder) as url:
        yield url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", SIZES)
def test_cards_can_be_read_by_everyone(browser, specimens, scheme, width):
    with tab(browser, specimens, viewport={"width": width, "height": SIZES[width]}, color_scheme=scheme) as page:
        visit(page, f"{specimens}/specimens")
        expect(page.get_by_text("At the end, step 20").first).to_be_visible()
        photograph(page, f"specimens-runs-{scheme}-{width}")
        assert findings(page) == []
        assert sideways(page) == []


def test_a_card_leads_to_its_run_and_to_the_cure(browser, specimens):
    with tab(browser, specimens) as page:
        visit(page, f"{specimens}/specimens")
        page.get_by_role("link", name="9 Four blocks with RMSNorm").click()
        expect(page.get_by_text("9. Four blocks with RMSNorm")).to_be_in_viewport()
        assert page.url.endswith("#four-blocks-rms")
        card = page.locator(".st-key-specimen-single-head-unscaled")
        card.get_by_role("link", name=re.compile("Scaled, but alone")).click()
        expect(page.get_by_text("2. Scaled, but alone")).to_be_in_viewport()
        page.locator(".st-key-specimen-multi-head").get_by_role("button", name="Training").click()
        page.wait_for_url("**/training?**")
        settle(page)
        assert query(page)["run"] == ["multi-head"]
