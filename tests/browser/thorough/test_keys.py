"""The keys of a page's timeline."""

import pytest
from playwright.sync_api import expect

from tests.browser.test_keys import says
from tests.browser.thorough.test_scrub import place, step
from tests.browsing import query, settle, visit

pytestmark = pytest.mark.slow


def test_brackets_move_the_step(page, server):
    visit(page, f"{server}/ablate?run=toy")
    last = place(page)
    for key, there in (("[", last - 1), ("[", last - 2), ("]", last - 1)):
        page.keyboard.press(key)
        settle(page)
        assert place(page) == there
    assert query(page)["step"] == [step(page)]
    page.get_by_role("combobox").first.focus()
    page.keyboard.press("[")
    settle(page)
    page.get_by_role("combobox").first.blur()
    assert place(page) == last - 1
    page.keyboard.press("?")
    panel = page.get_by_role("dialog", name="Keys")
    says(panel, "", "")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("textbox", name="Prompt")).to_be_focused()
