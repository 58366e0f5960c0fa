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
    for step in (4, 5):
        page.keyboard.press("n")
        expect(page.locator(".st-key-tour").get_by_role("img", name=f"Step {step} of 5")).to_be_visible()
        settle(page)
    expect(page.get_by_role("heading", name="Ablate", exact=True)).to_be_visible()
    page.keyboard.press("n")
    expect(page.locator(".st-key-tour")).to_have_count(0)


def test_bars_begin_beside_their_tokens_on_a_phone(page, server):
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, f"{server}/find?run=toy")
    rows = page.locator(".tally tbody tr").filter(has=page.locator("th"), visible=True)
    expect(rows.first).to_be_visible()
    for row in rows.all():
        name, track = row.locator("th").bounding_box(), row.locator(".track").bounding_box()
        assert name["x"] + name["width"] <= track["x"] + 1 and name["width"] < 0.42 * 390 and track["width"] > 150
