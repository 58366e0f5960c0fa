"""The scrubber drives what stands beside the pattern: the first of two compared, their change, and an overview."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browsing import settle, visit

pytestmark = pytest.mark.slow

DIFFERS = "([canvas, url]) => canvas.toDataURL() !== url"
SAME = "([canvas, url]) => canvas.toDataURL() === url"


def picture(canvas: Locator) -> str:
    canvas.evaluate("() => document.fonts.ready")  # a face that comes late draws every picture again
    return canvas.evaluate("(canvas) => canvas.toDataURL()")


def drag(page: Page, share: float) -> None:
    """Hold the timeline at a share of its length."""
    box = page.get_by_role("slider", name="Step of training").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2, steps=5)


def test_the_first_of_two_patterns_plays_and_the_second_stays(page: Page, server: str) -> None:
    visit(page, f"{server}/heads?run=toy&layer=1&head=1&other_step=0")
    part = page.locator(".part.versus")
    first, second, change = (part.locator("figure").nth(i).locator("canvas").first for i in range(3))
    before = [picture(canvas) for canvas in (first, second, change)]
    title = part.locator("figcaption").first
    drag(page, 0.3)
    for canvas, url in ((first, before[0]), (change, before[2])):
        page.wait_for_function(DIFFERS, arg=[canvas.element_handle(), url])
    assert picture(second) == before[1]
    expect(title).to_contain_text("→ step")
    page.keyboard.press("Escape")
    for canvas, url in zip((first, second, change), before, strict=True):
        page.wait_for_function(SAME, arg=[canvas.element_handle(), url])
    expect(title).not_to_contain_text("→ step")
    page.mouse.up()
    drag(page, 0)
    page.mouse.up()
    settle(page)
    expect(title).to_contain_text("step 0")
    expect(title).not_to_contain_text("→")
    assert picture(first) == picture(second)
    expect(part.locator("figcaption").last).to_contain_text("nothing changed")


def test_an_overview_plays_along(page: Page, server: str) -> None:
    words = " ".join(str(5 + i % 40) for i in range(400))
    visit(page, f"{server}/heads?run=long&prompt={words.replace(' ', '%20')}")
    canvas = page.locator(".part.overview canvas").first
    expect(canvas).to_be_visible()
    before = picture(canvas)
    drag(page, 0)
    page.wait_for_function(DIFFERS, arg=[canvas.element_handle(), before])
    page.keyboard.press("Escape")
    page.wait_for_function(SAME, arg=[canvas.element_handle(), before])
    page.mouse.up()
