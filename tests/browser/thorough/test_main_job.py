"""The end of the main job: a run is swept in a process of its own, and a head is put to the tests."""

import re
import shutil

import pytest
from playwright.sync_api import expect

import tracer
from tests.browsing import query, settle, visit

pytestmark = pytest.mark.slow


@pytest.fixture
def swept(folder):
    """A copy of the toy with every fourth of its snapshots, and the last."""
    directory = shutil.copytree(folder / "checkpoints" / "toy", folder / "checkpoints" / "swept")
    snapshots = sorted((directory / "snapshots").glob("*.safetensors"))
    for i, one in enumerate(reversed(snapshots)):
        if i % 4:
            one.unlink()
    yield directory
    shutil.rmtree(directory)


def test_a_run_is_swept_and_a_head_is_put_to_the_tests(page, server, swept):
    visit(page, f"{server}/ablate?run=swept&off=L0H0&section=when")

    # Every snapshot is measured by a process of its own; its progress ends in curves and points.
    page.get_by_role("button", name=re.compile(r"^Measure \d+ snapshots")).click()
    points = page.locator(".st-key-when_scatter .scatterlayer .point")
    expect(points).to_have_count(8)
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    settle(page)
    assert tracer.open_run(swept).effects.sizes["mode"] == 3
    order = r"^L1H\d: its induction score (rose (before|after)|and its effect rose together)"
    expect(page.get_by_text(re.compile(order))).to_be_visible()

    # A point takes its head into focus, and the card says what it is.
    points.nth(1).scroll_into_view_if_needed()
    settle(page)  # what comes into view is drawn then, and may move the point
    box = points.nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".st-key-when_scatter .hovertext").first).to_contain_text("L0H1")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url(lambda url: "layer=0&head=1" in url)
    settle(page)
    assert (query(page)["layer"], query(page)["head"]) == (["0"], ["1"])
    page.get_by_role("button", name="Test L0H1 as induction head").click()
    expect(page.get_by_text(re.compile("^L0H1 of swept at step .* tests passed"))).to_be_visible()
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
