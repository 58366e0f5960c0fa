"""The bracket keys on every page with a step."""

import pytest
from playwright.sync_api import expect

from tests.browser.test_keys import says
from tests.browsing import query, settle, visit

pytestmark = pytest.mark.slow


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
