"""The head finder and the heatmap in a real browser: type, see who is lit, turn to a heatmap, choose a row."""

import re

import pytest
from playwright.sync_api import expect

from tests.browsing import query, settle

pytestmark = pytest.mark.slow


def test_find_a_head_and_follow_it_through_training(page, server):
    page.goto(f"{server}/heads?run=toy")
    settle(page)

    # A line that names one head brings it into focus; the address carries the line.
    box = page.get_by_role("textbox", name="Find heads")
    box.fill("L0H1")
    box.press("Enter")
    settle(page)
    expect(page.get_by_role("heading", name="L0H1 on this prompt")).to_be_visible()
    assert query(page)["find"] == ["L0H1"]

    # Many heads: a chip each, strongest first, and a chip takes its head into focus.
    box.fill("top 2 induction")
    box.press("Enter")
    settle(page)
    chips = page.get_by_role("radiogroup", name=re.compile("2 of 8 heads")).get_by_role("radio")
    expect(chips).to_have_count(2)
    label, value = chips.nth(1).inner_text().split()
    assert float(chips.nth(0).inner_text().split()[1]) >= float(value)
    chips.nth(1).click()
    settle(page)
    expect(page.get_by_role("heading", name=f"{label} on this prompt")).to_be_visible()

    # A word that is not understood is said, and runs nowhere.
    box.fill("<img src=x onerror=alert(1)> > 1")
    box.press("Enter")
    settle(page)
    expect(page.get_by_text("“<” is not expected here")).to_be_visible()
    assert page.locator("img[src=x]").count() == 0

    # The heatmap: a row for each head; the keys choose, and the page follows.
    page.get_by_role("radio", name="Heatmap").click()
    settle(page)
    heatmap = page.get_by_role("application", name=re.compile("of 8 heads over"))
    expect(heatmap).to_be_visible()
    heatmap.focus()
    page.keyboard.press("Home")
    settle(page)
    rows = page.get_by_role(
        "application", name=re.compile(r"Selected L\dH\d: .*(changed at step \d+|no lasting change)")
    )
    expect(rows).to_be_visible()
    first = re.findall(r"Selected (L\dH\d)", rows.get_attribute("aria-label"))[0]
    expect(page.get_by_role("heading", name=f"{first} on this prompt")).to_be_visible()
    assert query(page)["view"] == ["heatmap"]

    # Sorted by layer the first row is L0H0; a click on it is the same choice.
    page.get_by_role("button", name="by layer").click()
    settle(page)
    area = heatmap.bounding_box()
    page.mouse.click(area["x"] + 200, area["y"] + 22)
    settle(page)
    expect(page.get_by_role("heading", name="L0H0 on this prompt")).to_be_visible()

    # The link opens the same view elsewhere.
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    settle(page)
    expect(page.get_by_role("heading", name="L0H0 on this prompt")).to_be_visible()
    expect(page.get_by_role("application", name=re.compile("of 8 heads over"))).to_be_visible()


def test_the_line_of_the_step_follows_a_film(page, server):
    page.goto(f"{server}/heads?run=toy&view=heatmap")
    settle(page)
    ink = """() => {
      const roots = [...document.querySelectorAll('*')].map((node) => node.shadowRoot).filter(Boolean);
      const canvas = roots.flatMap((root) => [...root.querySelectorAll('.step_heatmap .stage canvas')])[1];
      const { width, data } = canvas.getContext('2d').getImageData(0, 14 * devicePixelRatio, canvas.width, 1);
      const seen = []; // opaque columns in the line's tail above the rows
      for (let x = 0; x < width; x++) if (data[4 * x + 3] > 128) seen.push(x / width);
      return seen;
    }"""
    before = page.evaluate(ink)
    strip = page.get_by_role("slider", name="Step of training").bounding_box()
    page.mouse.move(strip["x"] + 0.2 * strip["width"], strip["y"] + strip["height"] / 2)
    page.mouse.down()
    page.mouse.move(strip["x"] + 0.15 * strip["width"], strip["y"] + strip["height"] / 2, steps=4)
    page.wait_for_function(f"before => JSON.stringify(({ink})()) !== JSON.stringify(before)", arg=before)
    during = page.evaluate(ink)
    assert "step" not in query(page)  # the mouse is still down: nobody but the browser knows
    page.mouse.up()
    settle(page)
    assert "step" in query(page)
    after = page.evaluate(ink)
    assert before and during and after
    assert max(during) < 0.5 < min(before) and max(after) < 0.5
