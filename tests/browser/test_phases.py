"""Phases in a real browser: every picture leads to a step, and says what it shows."""

import re

import pytest
from playwright.sync_api import expect

import tracer
from dashboard.views.phases.order import circuit
from tests.browsing import number, photograph, query, settle, sideways, spot, tip, visit
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


def look_closer(page):
    """The losses by position, their path and the undoing are folded, until asked for."""
    page.locator(".st-key-closer summary").click()
    expect(page.locator(".st-key-surface_loss .main-svg").first).to_be_visible()
    settle(page)


def test_the_page_reports_the_order_it_finds(page, server, toy):
    visit(page, f"{server}/phases?run=toy")
    expect(page.get_by_text(re.sub(r"\*\*", "", circuit(course(toy.trace))).split(",")[0])).to_be_visible()
    assert sideways(page) == []
    photograph(page, "phases")


@pytest.mark.parametrize(("key", "lane"), [("timeline", 1), ("surface_loss", 0)])
def test_a_click_goes_to_the_nearest_step(page, server, toy, key, lane):
    visit(page, f"{server}/phases?run=toy")
    look_closer(page)
    page.mouse.move(*spot(page, key, 0.6, 0.4, lane))
    expect(tip(page, key).first).to_contain_text("step")
    said = re.search(r"step ([\d,]+)", "".join(tip(page, key).all_text_contents()))
    assert said is not None
    shown = int(number(said[1]))
    page.mouse.click(*spot(page, key, 0.6, 0.4, lane))
    assert stepped(page) == shown and shown in toy.trace.step.values


def test_a_click_on_the_path_goes_to_its_step(page, server, toy):
    visit(page, f"{server}/phases?run=toy&path=all")
    page.locator(".st-key-loss_path").scroll_into_view_if_needed()
    first = page.locator(".st-key-loss_path .scatterlayer .point").first.bounding_box()
    page.mouse.move(first["x"] + first["width"] / 2, first["y"] + first["height"] / 2)
    said = re.search(r"step ([\d,]+)", tip(page, "loss_path").first.text_content() or "")
    assert said is not None
    shown = int(number(said[1]))
    page.mouse.click(first["x"] + first["width"] / 2, first["y"] + first["height"] / 2)
    assert stepped(page) == shown and shown in toy.trace.step.values


def test_a_drag_zooms_and_a_double_click_resets(page, server):
    visit(page, f"{server}/phases?run=toy")
    look_closer(page)
    ticks = page.locator(".st-key-surface_loss .xtick text")
    before = ticks.all_text_contents()
    page.mouse.move(*spot(page, "surface_loss", 0.5, 0.2))
    page.mouse.down()
    page.mouse.move(*spot(page, "surface_loss", 0.9, 0.8), steps=5)
    page.mouse.up()
    expect(ticks.first).not_to_have_text(before[0])
    settle(page)
    assert "step" not in query(page)  # a drag goes nowhere
    page.mouse.dblclick(*spot(page, "surface_loss", 0.5, 0.5))
    expect(ticks.first).to_have_text(before[0])


def test_the_table_says_what_the_lanes_show(page, server, toy):
    visit(page, f"{server}/phases?run=toy")
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


def test_the_page_fits_a_phone(page, server):
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, f"{server}/phases?run=toy")
    assert sideways(page) == []
    photograph(page, "phases-390")


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
