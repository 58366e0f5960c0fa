"""The keys that work on every page, and what their panel says where one does nothing."""

import pytest
from playwright.sync_api import expect

from tests.browsing import settle, visit

pytestmark = pytest.mark.slow


def says(panel, brackets, space):
    expect(panel.get_by_text(f"one step back or on along the timeline{brackets}", exact=True)).to_be_visible()
    expect(panel.get_by_text(f"play training, or stop it{space}", exact=True)).to_be_visible()


def test_keys_are_listed_and_do_what_they_say(page, server):
    """In a text box they are letters."""
    visit(page, f"{server}/heads?run=toy")
    panel = page.get_by_role("dialog", name="Keys")
    page.keyboard.press("?")
    says(panel, "", "")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.get_by_role("button", name="Keyboard help").click()
    expect(panel).to_be_visible()
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()
    page.keyboard.press("/")
    field = page.get_by_role("textbox", name="Find heads")
    expect(field).to_be_focused()
    page.keyboard.type("?/")
    expect(field).to_have_value("?/")
    expect(panel).to_be_hidden()
    field.press("Enter")
    settle(page)
    page.get_by_test_id("stTopNavLink").filter(has_text="Runs").click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    settle(page)
    page.keyboard.press("?")
    says(panel, *2 * [", where a page has a timeline"])
