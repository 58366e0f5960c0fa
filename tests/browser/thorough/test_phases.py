"""Phases in a real browser: every picture leads to a step, and says what it shows."""

import re

import pytest
from playwright.sync_api import expect

import tracer
from dashboard.views.phases.order import answer
from tests.browsing import number, query, settle, spot, tip, visit
from tracer.analysis.training_curves import course, events

pytestmark = pytest.mark.slow


@pytest.fixture
def toy(folder):
    return tracer.open_run(folder / "checkpoints" / "toy")


def look_closer(page):
    """The losses by position, their path and the undoing are folded, until asked for."""
    page.locator(".st-key-closer summary").click()
    expect(page.locator(".st-key-surface_loss .main-svg").first).to_be_visible()
    settle(page)


def test_the_page_says_what_its_pictures_show(page, server, toy):
    visit(page, f"{server}/phases?run=toy")
    first, *_ = answer(course(toy.trace), events(course(toy.trace))).split(" (")
    expect(page.get_by_text(first)).to_be_visible()
    folded = page.locator(".st-key-timeline_numbers")
    folded.get_by_text("Show as table").click()
    expect(folded.locator("table tbody tr").first).to_be_attached()
    rows = [row.locator("td").all_text_contents() for row in folded.locator("table tbody tr").all()]
    rows = {label: cells for label, *cells in rows}
    found = {curve.label: curve for curve in course(toy.trace)}
    assert set(found) <= set(rows)
    for label, curve in found.items():
        change = curve.change
        expected = [""] * 3 if change is None else [str(change.onset), str(change.midpoint), str(change.end)]
        assert rows[label][:3] == expected, label


def test_a_line_goes_with_the_timeline(page, server, toy):
    """It stands over the tick of the step, linear and logarithmic, through all curves, and goes with the mouse."""
    visit(page, f"{server}/phases?run=toy")
    slider = page.get_by_role("slider", name="Step of training")
    lines = page.locator(".st-key-timeline .moment-line")
    for step, log in ((100, False), (1, True)):
        if log:
            page.get_by_role("radio", name="log").click()
            settle(page)
        expect(lines).to_have_count(0)
        box = slider.bounding_box()
        share = step / int(toy.trace.step.max())
        page.mouse.move(box["x"] + 9 + share * (box["width"] - 18), box["y"] + 40)
        page.mouse.down()
        expect(slider).to_have_attribute("aria-valuetext", re.compile(f"^step {step},"))
        named = page.locator(".st-key-timeline .xtick text").filter(has_text=re.compile(f"^{step}$"))
        tick = named.first.bounding_box()
        line = lines.bounding_box()
        assert abs(line["x"] + line["width"] / 2 - tick["x"] - tick["width"] / 2) < 2
        assert line["height"] > 0.9 * page.locator(".st-key-timeline .main-svg").first.bounding_box()["height"] - 40
        page.keyboard.press("Escape")
        page.mouse.up()
    expect(lines).to_have_count(0)


def test_every_picture_looks_closer_or_leads_to_a_step(page, server, toy):
    visit(page, f"{server}/phases?run=toy&path=all")
    ticks = page.locator(".st-key-surface_loss .xtick text")
    expect(ticks.first).to_be_visible()
    before = ticks.all_text_contents()
    page.mouse.move(*spot(page, "surface_loss", 0.5, 0.2))
    page.mouse.down()
    page.mouse.move(*spot(page, "surface_loss", 0.9, 0.8), steps=5)
    page.mouse.up()
    expect(ticks.first).not_to_have_text(before[0])
    settle(page)
    assert "step" not in query(page)  # a drag goes nowhere
    for _ in range(4):  # a browser that gets no core for half a second sees two clicks
        page.mouse.dblclick(*spot(page, "surface_loss", 0.5, 0.5))
        settle(page)
        if ticks.first.text_content() == before[0]:
            break
    expect(ticks.first).to_have_text(before[0])
    for key, lane, x in (("timeline", 1, 0.6), ("surface_loss", 0, 0.4)):
        leads_to_its_step(page, toy, key, *spot(page, key, x, 0.4, lane))
    page.locator(".st-key-loss_path").scroll_into_view_if_needed()
    settle(page)
    first = page.locator(".st-key-loss_path .scatterlayer .point").first.bounding_box()
    leads_to_its_step(page, toy, "loss_path", first["x"] + first["width"] / 2, first["y"] + first["height"] / 2)


def leads_to_its_step(page, toy, key, x, y):
    """A click there goes to the step that is told there, which is another than before."""
    was = query(page).get("step")
    page.mouse.move(x, y)
    expect(tip(page, key).first).to_contain_text("step")
    said = re.search(r"step ([\d,]+)", "".join(tip(page, key).all_text_contents()))
    assert said is not None
    shown = int(number(said[1]))
    page.mouse.click(x, y)
    page.wait_for_function("step => new URLSearchParams(location.search).get('step') === step", arg=str(shown))
    settle(page)
    assert shown in toy.trace.step.values and query(page)["step"] != was


def test_an_address_is_the_whole_view(page, server, folder):
    visit(page, f"{server}/phases?run=toy")
    look_closer(page)
    page.get_by_role("radio", name="log").click()
    page.get_by_role("radio", name=re.compile("change since step")).click()
    page.wait_for_function("() => location.search.includes('since=True') && location.search.includes('log=True')")
    settle(page)
    there = page.url
    shown = page.locator(".st-key-surface_loss").get_by_role("figure").get_attribute("aria-label")
    assert "less step" in shown
    other = page.context.new_page()
    visit(other, there)
    expect(other.get_by_role("radio", name="log")).to_be_checked()
    expect(other.locator(".st-key-surface_loss").get_by_role("figure")).to_have_attribute("aria-label", shown)
    assert other.url == there
