"""Every page as one file, in a browser: made on a press, opened without a network, with every picture alive."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.shared.export.snippets import PAGES
from tests.browser.thorough.test_taking import FITS, PAINTED, offline, rows, safe, saved  # noqa: F401
from tests.browsing import settle, visit

pytestmark = pytest.mark.slow

SEEN = """(within) => [...document.querySelectorAll(within)].flatMap((node) => [node, ...node.querySelectorAll("*")])
  .map((node) => node.shadowRoot?.querySelector(".part")).filter((part) => part && part.clientWidth)
  .map((part) => part.classList[1]).filter((name) => !["taker", "keys", "rule", "scheme"].includes(name))"""
TITLES = "(which) => [...document.querySelectorAll(which)].map((node) => node.textContent)"


def take(page: Page, label: str = "Download this view") -> tuple[str, str]:
    """Name and text of the file."""
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=label).click()
    return download.value.suggested_filename, Path(download.value.path()).read_text("utf-8")


@pytest.mark.parametrize("name", sorted(PAGES.keys() - {"training", "ablate"}))
def test_a_page_is_taken_as_it_stands(page: Page, server: str, offline, name: str) -> None:  # noqa: F811
    visit(page, f"{server}/{name}?run=toy&layer=1&head=1")
    if name == "gradients":
        expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
        page.locator(".st-key-tensors summary").click()
        page.locator(".st-key-tensors table").wait_for(state="attached")
    is_taken(page, server, offline, name)


def is_taken(page: Page, server: str, offline, name: str) -> Page:  # noqa: F811
    """The file of the page, open without a network: its parts and titles, both schemes, wide and narrow."""
    there = page.evaluate(SEEN, "[data-testid=stMainBlockContainer]")
    titles = page.evaluate(TITLES, "[data-testid=stMain] h2")
    file, text = take(page)
    assert re.fullmatch(rf"{name}-toy-step-\d+\.html", file)
    tab = offline(text)
    expect(tab.get_by_role("heading", level=1)).to_have_text(f"{name.title()} · toy")
    assert there or name == "phases"  # whose open part is of Plotly's charts
    tab.wait_for_function(f"(there) => JSON.stringify(({SEEN})('main')) === JSON.stringify(there)", arg=there)
    assert tab.evaluate(TITLES, ".taken h2") == titles and titles
    for part in tab.locator(".part:has(canvas)").all():  # the upper one of two may be empty until the mouse comes
        base = part.locator("canvas").first
        tab.wait_for_function(f"(canvas) => ({PAINTED})(canvas) > 1", arg=base.element_handle())
    link = tab.get_by_role("link").get_attribute("href")
    assert link and link.startswith(f"{server}/{name}?run=toy") and "layer=1&head=1" in link
    assert "import tracer" in tab.locator(".notes code").last.inner_text()
    for scheme, colour in (("dark", "rgb(15, 18, 24)"), ("light", "rgb(255, 255, 255)")):
        tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == colour
        if there:
            expect(tab.locator(".part").first).to_have_attribute("data-mode", scheme)
    for width in (390, 1300):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate(FITS)
    return tab


def test_pictures_of_a_file_live_on(page: Page, server: str, offline) -> None:  # noqa: F811
    sizes: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sizes.append(len(frame))))
    visit(page, f"{server}/training?run=toy&layer=1&head=1")
    shown = sum(sizes)
    page.get_by_role("button", name="Share").click()
    settle(page)
    offered = sum(sizes)
    page.keyboard.press("Escape")
    tab = is_taken(page, server, offline, "training")

    # Nothing of it was made before the press.
    size = Path(tab.url.removeprefix("file://")).stat().st_size
    assert sum(sizes) - offered > size and offered - shown < size / 2
    expect(page.get_by_text(re.compile(r"Saved training-toy-step-\d+\.html"))).to_be_visible()

    # One answers the other.
    entropy, measure = (tab.locator(f".st-key-{key}") for key in ("entropy_curves", "measure_curves"))
    expect(entropy.locator("canvas").last).to_be_visible()
    drawn = measure.locator("canvas").last.evaluate("(c) => c.toDataURL()")
    entropy.locator("[tabindex='0']").first.focus()
    tab.keyboard.press("ArrowDown")
    tab.wait_for_function(
        "([canvas, url]) => canvas.toDataURL() !== url", arg=[measure.locator("canvas").last.element_handle(), drawn]
    )

    # And can be saved again.
    part = tab.locator(".part.curves").first
    expect(part.locator("canvas").first).to_be_visible()
    name, data = saved(tab, part, "CSV")
    assert re.fullmatch(r"loss-toy-step-\d+\.csv", name) and rows(data)[0][0] == "step"
    assert safe(saved(tab, part, "SVG")[1]) and saved(tab, part, "PNG")[1].startswith(b"\x89PNG")


def test_a_strip_has_no_switches_and_says_what_is_off(page: Page, server: str, offline) -> None:  # noqa: F811
    visit(page, f"{server}/ablate?run=toy&layer=1&head=1&off=L0H1")
    tab = is_taken(page, server, offline, "ablate")
    strip = tab.locator(".mount.st-key-strip").get_by_role("application")
    expect(strip).to_have_attribute("aria-label", re.compile("Switched off: L0H1"))
    expect(strip).not_to_have_attribute("aria-label", re.compile("o switches"))
    slider = tab.get_by_role("slider", name="Step of training")
    at = slider.get_attribute("aria-valuetext") or ""
    slider.press("Home")  # all else in the file is of its own step
    expect(slider).to_have_attribute("aria-valuetext", at)
    assert not at.startswith("step 0,")


def test_a_comparison_comes_along(page: Page, server: str, offline) -> None:  # noqa: F811
    visit(page, f"{server}/heads?run=toy&other_step=0")
    expect(page.locator(".part.versus canvas").first).to_be_visible()
    name, text = take(page, "Download the whole page")
    assert re.fullmatch(r"heads-toy-step-\d+\.html", name)
    tab = offline(text)
    for part in ("scrubber", "atlas", "pattern", "versus", "token_view"):
        expect(tab.locator(f".part.{part} canvas").first).to_be_visible()
    assert "other_step=0" in (tab.get_by_role("link").get_attribute("href") or "")
    tab.get_by_role("slider", name="Step of training").press("Home")
    expect(tab.locator(".part.versus figcaption").first).to_contain_text("→ step 0")
    expect(tab.locator(".scrubber .step")).to_have_text("step 0")


def test_runs_are_taken_as_a_table(page: Page, server: str, offline) -> None:  # noqa: F811
    visit(page, f"{server}/")
    file, text = take(page)
    assert file == "runs.html"
    tab = offline(text)
    expect(tab.get_by_role("heading", level=1)).to_have_text("Runs")
    titles = tab.locator("th").all_inner_texts()
    assert titles[:4] == ["Run", "Status", "Kind", "Steps"] and "Parameters" in titles
    expect(tab.get_by_role("row", name="toy finished")).to_be_visible()
    assert "tracer.list_runs()" in tab.locator(".notes code").last.inner_text()
