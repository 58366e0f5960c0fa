"""Head curves in a browser: a drag looks closer, a double click shows all again, and only a click chooses a line."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browsing import settle, tab, visit

pytestmark = pytest.mark.slow
ALL = re.compile(r"0 shows all\.(?! Shown)")
SHOWN = re.compile(r"Shown: step ([\d,]+) to ([\d,]+)")
LINE = """canvas => { // where a line runs: the first coloured pixel from above, a third of the way to the right
  const x = Math.round(canvas.width / 3), ctx = canvas.parentElement.querySelector(".base").getContext("2d");
  const { data } = ctx.getImageData(x, 0, 1, canvas.height), ratio = canvas.width / canvas.clientWidth;
  const y = Array.from({ length: canvas.height }, (_, y) => y).find((y) => data[4 * y + 3] > 60);
  return [x / ratio, y / ratio];
}"""


def curves(page: Page) -> Locator:
    return page.get_by_role("application", name=re.compile("^Attention entropy over step"))


def place(page: Page, right: float, down: float) -> tuple[float, float]:
    """On the screen, as shares of the canvas."""
    box = curves(page).bounding_box()
    assert box is not None
    return box["x"] + right * box["width"], box["y"] + down * box["height"]


def drag(page: Page, start: tuple[float, float], stop: tuple[float, float]) -> None:
    page.mouse.move(*place(page, *start))
    page.mouse.down()
    page.mouse.move(*place(page, *stop), steps=4)
    page.mouse.up()


def shown(page: Page) -> tuple[int, int]:
    expect(curves(page)).to_have_attribute("aria-label", SHOWN)
    found = SHOWN.search(curves(page).get_attribute("aria-label") or "")
    assert found is not None
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def press(page: Page, key: str) -> tuple[int, int]:
    """The steps shown once the key has been answered."""
    before = curves(page).get_attribute("aria-label") or ""
    curves(page).press(key)
    expect(curves(page)).not_to_have_attribute("aria-label", before)
    return shown(page)


def test_a_drag_looks_closer_and_a_double_click_shows_all(page, server):
    visit(page, f"{server}/training?run=toy&layer=0&head=1")
    curves(page).scroll_into_view_if_needed()
    settle(page)
    expect(curves(page)).to_have_attribute("aria-label", ALL)
    address = page.url

    drag(page, (0.5, 0.4), (0.99, 0.42))
    middle, last = shown(page)
    page.mouse.dblclick(*place(page, 0.5, 0.05))
    expect(curves(page)).to_have_attribute("aria-label", ALL)
    drag(page, (0.5, 0.4), (0.02, 0.42))  # backwards, from the same place
    assert shown(page) == (0, middle) and 0 < middle < last

    half = curves(page).get_attribute("aria-label") or ""
    drag(page, (0.3, 0.3), (0.7, 0.32))  # closer still
    expect(curves(page)).not_to_have_attribute("aria-label", half)
    first, end = shown(page)
    assert 0 < first < end < middle
    page.get_by_role("button", name="Show all").first.click()
    expect(curves(page)).to_have_attribute("aria-label", ALL)

    drag(page, (0.5, 0.2), (0.5, 0.6))  # downwards: of the values alone
    expect(curves(page)).to_have_attribute("aria-label", re.compile(r"Shown: [\d.]+ to [\d.]+\."))
    drag(page, (0.6, 0.95), (0.3, 0.95))  # on the axis of the steps: both are looked at closer
    expect(curves(page)).to_have_attribute("aria-label", re.compile(r"Shown: step \d+ to \d+, [\d.]+ to [\d.]+\."))
    page.mouse.move(*place(page, 0.3, 0.3))
    page.mouse.down()
    page.mouse.move(*place(page, 0.4, 0.3), steps=3)
    before = curves(page).get_attribute("aria-label")
    curves(page).press("Escape")  # gives a drag up
    page.mouse.up()
    assert curves(page).get_attribute("aria-label") == before

    # Keys look closer around the step that is shown.
    curves(page).press("0")
    expect(curves(page)).to_have_attribute("aria-label", ALL)
    first, last = press(page, "+")
    nearer, end = press(page, "+")
    assert end - nearer == pytest.approx((last - first) / 2, abs=1) and first <= nearer < end <= last
    assert press(page, "-") == (first, last)
    settle(page)
    assert page.url == address  # nothing of all this was a click


def test_a_line_is_pointed_at_and_chosen(page, server):
    visit(page, f"{server}/training?run=toy&layer=0&head=1")
    curves(page).scroll_into_view_if_needed()
    settle(page)

    # Under the mouse its step is marked in the neighbours, too.
    beside = page.locator(".st-key-me-measure_curves .stage canvas").last
    before = beside.evaluate("canvas => canvas.toDataURL()")
    x, y = curves(page).evaluate(LINE)
    curves(page).hover(position={"x": x, "y": y})
    page.wait_for_function("() => manyeyes.topics.get('pointed')?.value?.step >= 0")
    assert beside.evaluate("canvas => canvas.toDataURL()") != before

    # Its name shows the line alone.
    base = page.locator(".st-key-me-entropy_curves .stage .base")
    box = curves(page).bounding_box()
    assert box is not None
    expect(base).not_to_have_class(re.compile("dim"))
    for down in range(10, int(box["height"]) - 20, 5):
        page.mouse.move(box["x"] + box["width"] - 16, box["y"] + down)
        if "dim" in (base.get_attribute("class") or ""):
            break
    expect(base).to_have_class(re.compile("dim"))
    page.mouse.move(0, 0)
    expect(base).not_to_have_class(re.compile("dim"))
    assert page.evaluate("manyeyes.topics.get('pointed').value") is None

    # A click chooses it, two clicks leave what was chosen.
    curves(page).click(position={"x": x, "y": y})
    page.wait_for_url(lambda url: "layer=0&head=1" not in url)
    settle(page)
    address = page.url
    drag(page, (0.3, 0.4), (0.8, 0.42))
    shown(page)
    x, y = curves(page).evaluate(LINE)
    curves(page).dblclick(position={"x": x, "y": y})
    expect(curves(page)).to_have_attribute("aria-label", ALL)
    settle(page)
    assert page.url == address


def test_a_finger_across_the_curves_looks_closer(browser, server):
    with tab(browser, server, viewport={"width": 390, "height": 844}, has_touch=True) as page:
        visit(page, f"{server}/training?run=toy&layer=0&head=1")
        curves(page).scroll_into_view_if_needed()
        settle(page)
        address = page.url
        touch = page.context.new_cdp_session(page)
        (x0, y), (x1, _) = place(page, 0.4, 0.4), place(page, 0.8, 0.4)

        def send(kind: str, *xs: float) -> None:
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x in xs]})

        send("touchStart", x0)
        for part in range(1, 9):
            send("touchMove", x0 + (x1 - x0) * part / 8)
        send("touchEnd")
        first, last = shown(page)
        assert 0 < first < last
        page.get_by_role("button", name="Show all").first.click()  # a tap right after a finger is not always a click
        expect(curves(page)).to_have_attribute("aria-label", ALL)
        settle(page)
        assert page.url == address
