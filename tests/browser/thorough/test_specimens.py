"""Papers in a browser: cards of real runs that everybody can read, and the ways from them to other pages."""

import re
import shutil

import pytest
from playwright.sync_api import expect

from tests.browser.thorough.test_taking import FITS, offline  # noqa: F401
from tests.browser.thorough.test_taking_pages import take
from tests.browsing import SIZES, findings, in_both_schemes, photograph, query, settle, sideways, tab, visit
from tests.dashboard.test_specimens import narrow
from tracer.presets import preset
from tracer.training.loop import train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def specimens(folder, server):
    """The address of the dashboard over a collapsed head, a healthy one and four, for as long as these tests."""
    names = ("single-head-unscaled", "single-head-residual", "multi-head")
    for name in names:
        config = narrow(preset(f"{name}-small").config, folder / "checkpoints" / name, 20)
        train(config, preset=f"{name}-small", quiet=True)
    yield server
    for name in names:
        shutil.rmtree(folder / "checkpoints" / name)


def test_cards_can_be_read_by_everyone(browser, specimens):
    with tab(browser, specimens, color_scheme="light") as page:
        visit(page, f"{specimens}/specimens?cards=single-head-unscaled")
        expect(page.get_by_text("At the end, step 20").first).to_be_visible()
        for width, height in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            scheme = next(in_both_schemes(page, width))
            photograph(page, f"specimens-runs-{scheme}-{width}")
            assert findings(page) == []
            assert sideways(page) == []


def test_a_card_leads_to_its_run_and_to_the_cure(browser, specimens):
    with tab(browser, specimens) as page:
        visit(page, f"{specimens}/specimens")
        page.get_by_role("link", name="With RMSNorm, four blocks are best").click()
        expect(page.get_by_text("9. Four blocks with RMSNorm")).to_be_in_viewport()
        assert page.url.endswith("#four-blocks-rms")
        page.get_by_role(
            "link", name="Unscaled scores leave each row one key"
        ).click()  # its card is folded: this opens it
        card = page.locator(".st-key-specimen-single-head-unscaled")
        card.get_by_role("link", name=re.compile("Scaled, but alone")).click()
        expect(page.get_by_text("2. Scaled, but alone")).to_be_in_viewport()
        other = page.locator(".st-key-specimen-multi-head")
        other.locator("summary").first.click()
        other.get_by_role("button", name="Training").click()
        page.wait_for_url("**/training?**")
        settle(page)
        assert query(page)["run"] == ["multi-head"]


def test_a_press_anywhere_on_a_folded_card_opens_it_where_it_stands(browser, specimens):
    with tab(browser, specimens) as page:
        visit(page, f"{specimens}/specimens")
        card = page.locator(".st-key-specimen-multi-head")
        for width, height in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            card.scroll_into_view_if_needed()
            settle(page)
            before, title = box(card), box(card.locator("h3"))
            page.mouse.click(before["x"] + before["width"] / 2, title["y"] + title["height"] / 2)  # on no word of it
            expect(card.get_by_text("Claims that it is part of")).to_be_attached()
            settle(page)
            assert query(page)["cards"] == ["multi-head"]
            assert box(card)["y"] == before["y"] and box(card)["height"] > 3 * before["height"]
            fold = card.locator("summary").first
            fold.focus()
            page.keyboard.press("Enter")
            expect(card.get_by_text("Claims that it is part of")).not_to_be_attached()
            page.wait_for_function(
                "([card, height]) => card.getBoundingClientRect().height === height",
                arg=[card.element_handle(), before["height"]],
            )
            settle(page)
            assert "cards" not in query(page)
            expect(fold).to_be_focused()


def box(place):
    found = place.bounding_box()
    assert found is not None
    return found


@pytest.mark.parametrize("link", ["specimens?cards=multi-head", "specimens#multi-head"])
def test_a_link_to_a_card_shows_it_open(browser, specimens, link):
    with tab(browser, specimens) as page:
        visit(page, f"{specimens}/{link}")
        card = page.locator(".st-key-specimen-multi-head")
        expect(card.get_by_text("Claims that it is part of")).to_be_attached()
        settle(page)
        expect(card.locator("h3")).to_be_in_viewport(ratio=1)
        assert query(page)["cards"] == ["multi-head"] and box(card)["y"] < 200
        page.mouse.move(700, 500)
        page.mouse.wheel(0, -20_000)  # the reader is not held there
        expect(page.get_by_text(re.compile("findings hold here|No finding is tested yet"))).to_be_in_viewport()
        settle(page)
        expect(page.get_by_text(re.compile("findings hold here|No finding is tested yet"))).to_be_in_viewport()


def test_the_page_is_taken_along(browser, specimens, offline):  # noqa: F811
    with tab(browser, specimens) as page:
        visit(page, f"{specimens}/specimens?cards=multi-head")
        settle(page)
        name, text = take(page)
    assert name == "papers.html"
    file = offline(text)
    expect(file.get_by_role("heading", level=1)).to_have_text("Papers")
    expect(file.get_by_role("heading", name="1. One head, nothing scaled")).to_be_visible()
    expect(file.get_by_text(re.compile("Unscaled attention is one-hot from the start"))).to_be_visible()  # folded
    expect(file.get_by_text("Not asked for. On the page: “Open all cards”.")).to_have_count(0)
    for part in ("atlas", "curves"):
        expect(file.locator(f".part.{part} canvas").first).to_be_visible()
    assert file.locator(".part.atlas").count() == 2  # both ends of the open card
    link = file.get_by_role("link").get_attribute("href")
    assert link == f"{specimens}/specimens?cards=multi-head"
    assert "answers_of(folder.paper, found)" in file.locator(".notes code").last.inner_text()
    for width in (1300, 390):
        file.set_viewport_size({"width": width, "height": 900})
        file.evaluate(FITS)
