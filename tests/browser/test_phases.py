"""Phases in a real browser: every picture leads to a step, by mouse and by keyboard, and says what it shows."""

import re

import pytest
from playwright.sync_api import expect

import tracer
from dashboard.pages.phases.order import circuit
from tests.browsing import number, photograph, query, settle, sideways, visit
from tracer.analysis.training_curves import course

pytestmark = pytest.mark.slow


@pytest.fixture
def toy(folder):
    return tracer.open_run(folder / "checkpoints" / "toy")


def stepped(page):
    """The step in the address, as a number."""
    page.wait_for_function("() => location.search.includes('step=')")
    settle(page)
    return int(query(page)["step"][0])


def test_the_page_reports_the_order_it_finds(page, server, toy):
    visit(page, f"{server}/phases?run=toy")
    expect(page.get_by_text(re.sub(r"\*\*", "", circuit(course(toy.trace))).split(",")[0])).to_be_visible()
    assert sideways(page) == []
    photograph(page, "phases")


def test_a_click_on_a_lane_goes_to_the_nearest_step(page, server, toy):
    visit(page, f"{server}/phases?run=toy")
    lanes = page.locator(".timeline").get_by_role("application")
    box = lanes.bounding_box()
    lanes.hover(position={"x": box["width"] * 0.6, "y": box["height"] * 0.4})
    tip = page.locator(".timeline .tip")
    expect(tip).to_be_visible()
    shown = int(number(tip.locator("dd").first.inner_text()))
    lanes.click(position={"x": box["width"] * 0.6, "y": box["height"] * 0.4})
    assert stepped(page) == shown and shown in toy.trace.step.values


@pytest.mark.parametrize("part", ["timeline", "surface >> nth=0", "path"])
def test_arrows_walk_the_recorded_steps(page, server, toy, part):
    steps = [int(step) for step in toy.trace.step.values]
    visit(page, f"{server}/phases?run=toy&step={steps[5]}")
    page.locator(f".{part}").get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(f"**step={steps[6]}*")
    settle(page)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(f"**step={steps[4]}*")


def test_the_table_says_what_the_lanes_show(page, server, toy):
    visit(page, f"{server}/phases?run=toy")
    alt = page.locator(".timeline details")
    alt.locator("summary").click()
    expect(alt.locator("tbody tr").first).to_be_visible()
    rows = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in alt.locator("tbody tr").all()
    }
    found = {curve.label: curve for curve in course(toy.trace)}
    assert set(found) <= set(rows)
    for label, curve in found.items():
        change = curve.change
        expected = ["–"] * 3 if change is None else [str(change.onset), str(change.midpoint), str(change.end)]
        assert rows[label][:3] == expected, label


def test_the_page_fits_a_phone(page, server):
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, f"{server}/phases?run=toy")
    assert sideways(page) == []
    photograph(page, "phases-390")


def test_an_address_is_the_whole_view(page, server, folder):
    visit(page, f"{server}/phases?run=toy")
    page.get_by_role("radio", name="log").click()
    page.get_by_role("radio", name=re.compile("change since step")).click()
    page.wait_for_function("() => location.search.includes('since=True') && location.search.includes('log=True')")
    settle(page)
    there = page.url
    shown = page.locator(".surface").first.get_by_role("application").get_attribute("aria-label")
    other = page.context.new_page()
    visit(other, there)
    expect(other.get_by_role("radio", name="log")).to_be_checked()
    expect(other.locator(".surface").first.get_by_role("application")).to_have_attribute("aria-label", shown)
    assert other.url == there
