"""The bracket keys on pages with a step, and what the panel of keys says where they do nothing."""

import pytest
from playwright.sync_api import expect

from tests.browsing import query, settle, visit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["find", "gradients", "ablate", "circuits"])
def test_brackets_move_the_step(page, server, name):
    visit(page, f"{server}/{name}?run=toy")
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


@pytest.mark.parametrize(
    ("name", "brackets", "space"),
    [
        ("runs", ", where a page has a step", ", on Heads"),
        ("find", "", ", on Heads"),
        ("heads", "", ""),
    ],
)
def test_the_panel_says_where_keys_work(page, server, name, brackets, space):
    visit(page, f"{server}/{name}?run=toy")
    page.keyboard.press("?")
    panel = page.get_by_role("dialog", name="Keys")
    expect(panel.get_by_text(f"one snapshot back or on{brackets}", exact=True)).to_be_visible()
    expect(panel.get_by_text(f"play training, or stop it{space}", exact=True)).to_be_visible()
