"""The browser's Back and Forward: one entry a view, and at once."""

import pytest
from playwright.sync_api import expect

from tests.browsing import RELEASE, query, settle, tab, visit

pytestmark = pytest.mark.slow


def entries(page) -> int:
    return page.evaluate("history.length")


def go(page, name: str) -> None:
    page.get_by_test_id("stTopNavLink").filter(has_text=name).click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    page.wait_for_function("() => new URLSearchParams(location.search).has('run')")
    settle(page)


@pytest.mark.parametrize(("address", "names"), [("", ("Heads", "Phases", "Ablate")), ("runs", ("Heads",))])
def test_a_page_is_one_entry(page, server, address, names):
    """Runs too, which has two addresses and is marked in the menu at both."""
    visit(page, f"{server}/{address}?run=toy")
    runs = page.get_by_test_id("stTopNavLink").filter(has_text="Runs")
    expect(runs).to_have_count(1)
    expect(runs).to_have_attribute("aria-current", "page")
    before = entries(page)
    for count, name in enumerate(names, start=1):
        go(page, name)
        assert entries(page) == before + count
    for name in (*names[:-1][::-1], "Runs"):
        page.go_back()
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    assert query(page) == {"run": ["toy"]} and entries(page) == before + len(names)
    expect(runs).to_have_attribute("aria-current", "page")


def test_a_button_that_turns_the_page_with_a_choice_is_one_entry(page, server):
    """The host tells the choice before the page: of the page that is left, too, it was an entry."""
    visit(page, f"{server}/runs")
    before = entries(page)
    page.locator(".st-key-run-toy").get_by_role("button", name="toy", exact=True).click()
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    settle(page)
    assert query(page) == {"run": ["toy"]} and entries(page) == before + 1
    page.go_back()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    assert query(page) == {}


def test_back_goes_back_right_after_a_choice(page, server):
    visit(page, f"{server}/heads?run=toy")
    seen = [query(page)]
    for _ in range(2):
        was = page.evaluate("location.search")
        page.keyboard.press("[")
        page.wait_for_function("was => location.search !== was", arg=was)
        seen.append(query(page))
    count = entries(page)
    assert seen[1]["step"] != seen[2]["step"]
    for back in (seen[1], seen[0]):
        page.go_back()  # well within the time in which an old address is taken for one that is on its way
        settle(page)
        assert query(page) == back and entries(page) == count
    page.go_forward()
    settle(page)
    assert query(page) == seen[1] and entries(page) == count


def test_back_leads_to_where_the_reader_was(page, server):
    visit(page, f"{server}/training?run=toy")
    top = "document.querySelector('[data-testid=stMain]').scrollTop"
    page.mouse.move(700, 500)
    page.mouse.wheel(0, 600)
    page.wait_for_function(f"() => {top} > 300")  # a function: our policy lets nobody evaluate strings
    was = page.evaluate(top)
    go(page, "Phases")
    assert page.evaluate(top) < was
    page.go_back()
    page.wait_for_function(f"was => Math.abs({top} - was) < 3", arg=was)


@pytest.mark.parametrize("way", ["back", "menu"])
def test_a_page_that_is_being_left_asks_for_nothing(browser, server, way):
    """What asks again every two seconds does not while the next page is on its way: the host would clear that page."""
    with tab(browser, server, device_scale_factor=1) as page:  # a stopped clock is of a whole profile
        page.clock.install()
        visit(page, f"{server}/heads?run=toy")
        go(page, "Runs")
        page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 1)
        page.evaluate("wire.held = []")  # a server that is long in answering
        if way == "back":
            page.go_back()
        else:
            page.get_by_test_id("stTopNavLink").filter(has_text="Heads").click()
        page.wait_for_function("() => wire.held.length")
        page.clock.run_for(20_000)
        page.clock.resume()
        asked = page.evaluate("wire.held.length")
        page.evaluate(RELEASE)
        expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
        settle(page)
        assert asked == 1
