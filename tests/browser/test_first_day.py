"""A first day in a browser: the menu says where one is, and the tour goes on at a key."""

import pytest
from playwright.sync_api import expect

from tests.browsing import query, settle, visit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("address", ["", "runs"])
def test_the_menu_marks_runs(page, server, address):
    visit(page, f"{server}/{address}?run=toy")
    runs = page.get_by_test_id("stTopNavLink").filter(has_text="Runs")
    expect(runs).to_have_count(1)
    expect(runs).to_have_attribute("aria-current", "page")
    page.get_by_test_id("stTopNavLink").filter(has_text="Heads").click()
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    settle(page)
    page.go_back()
    expect(runs).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()


def test_a_key_goes_on_with_the_tour(page, server):
    visit(page, f"{server}/heads?run=toy")
    page.keyboard.press("n")
    settle(page)
    assert "tour" not in query(page)
    visit(page, f"{server}/heads?run=toy&tour=3")
    box = page.get_by_role("textbox", name="Prompt")
    box.press("End")
    page.keyboard.press("n")
    assert "n" in box.input_value() and query(page)["tour"] == ["3"]
    page.goto(f"{server}/heads?run=toy&tour=3")
    settle(page)
    for step, name in ((4, "Heads"), (5, "Ablate"), (6, "Training")):
        page.keyboard.press("n")
        expect(page.locator(".st-key-tour").get_by_role("img", name=f"Step {step} of 6")).to_be_visible()
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
        settle(page)
    page.keyboard.press("n")  # the last step trains, which no key begins
    settle(page)
    assert query(page)["tour"] == ["6"]
    expect(page.locator(".st-key-tour").get_by_role("button", name="Train it")).to_be_enabled()
