"""The keys that work on every page, and what their panel says where one does nothing."""

import pytest
from playwright.sync_api import expect

from tests.browsing import query, settle, visit

pytestmark = pytest.mark.slow


def says(panel, brackets, space):
    expect(panel.get_by_text(f"one snapshot back or on{brackets}", exact=True)).to_be_visible()
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
    says(panel, ", where a page has a step", ", on Heads")


def test_brackets_move_the_step(page, server):
    """Of the one slider of steps that Find, Gradients, Ablate and Circuits have; Heads has a timeline."""
    visit(page, f"{server}/ablate?run=toy")
    slider = page.locator(".st-key-step_box input")
    last, first = int(slider.input_value()), slider.get_attribute("aria-valuetext")
    for key, place in (("[", last - 1), ("[", last - 2), ("]", last - 1)):
        page.keyboard.press(key)
        settle(page)
        assert int(slider.input_value()) == place
    assert query(page)["step"] == [(slider.get_attribute("aria-valuetext") or "").replace(",", "")] != [first]
    page.get_by_role("combobox").first.focus()
    page.keyboard.press("[")
    settle(page)
    assert int(slider.input_value()) == last - 1
    page.get_by_role("combobox").first.blur()
    page.keyboard.press("?")
    panel = page.get_by_role("dialog", name="Keys")
    says(panel, "", ", on Heads")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("textbox", name="Prompt")).to_be_focused()
