"""A click on a head's switch changes pattern, guesses and the reason to what Python computes, and moves nothing."""

import re

import pytest
import torch
from playwright.sync_api import expect

import tracer
from tests.browsing import query, settle, visit

pytestmark = pytest.mark.slow
PROMPT = "5 7 9 11 5 7 9"
QUERY, KEY = 5, 1


def cut(model, layer, head):
    """Without the rows of W_O that the head writes with."""
    with torch.no_grad():
        model.blocks[layer].attn.W_O[head] = 0
    return model


def on_tile(layer, head, box, heads=4):
    """Where the switch of a tile is on the canvas: in the corner at the right, below the strip with the name."""
    cell = min(176, (box["width"] - 4 - (heads - 1) * 10) // heads)
    return {"x": 2 + head * (cell + 10) + cell - 19, "y": 2 + layer * (cell + 32) + 22 + 13}


def test_a_click_on_the_switch(page, server, folder):
    run = tracer.open_run(folder / "checkpoints" / "toy")
    tokens = torch.tensor([[run.about.bos, *map(int, PROMPT.split())]])
    visit(page, f"{server}/heads?run=toy&layer=1&head=2&prompt={PROMPT.replace(' ', '+')}")
    expected = {off: tracer.why(cut(run.model(), 0, 1) if off else run.model(), tokens, 1, 2, QUERY, KEY)
                for off in (False, True)}  # fmt: skip
    pattern = page.locator(".st-key-me-pattern")
    canvas = pattern.get_by_role("application")
    canvas.focus()
    exact = page.locator(".st-key-exact")
    page.keyboard.press("ArrowUp")  # pins the strongest cell of the last row
    for key in ["ArrowLeft"] * 8 + ["ArrowUp"] * 8 + ["ArrowDown"] * QUERY + ["ArrowRight"] * KEY:
        page.keyboard.press(key)
    expect(exact).to_contain_text(f"query {QUERY} ")
    settle(page)
    assert f"→ key {KEY} " in exact.inner_text()

    def said():
        settle(page)
        share = re.search(r": ([\d.]+)$", exact.inner_text())
        assert share
        return (
            float(share[1]),
            page.locator(".st-key-why_said").inner_text(),
            page.locator(".st-key-next_token").inner_text(),
        )

    atlas = page.locator(".st-key-me-atlas canvas").first
    before, places = said(), [atlas.bounding_box(), canvas.bounding_box()]
    atlas.click(position=on_tile(0, 1, places[0]))
    expect(page.get_by_text("Without L0H1: it writes nothing")).to_be_visible()
    after = said()
    for off, (share, why, _) in ((False, before), (True, after)):
        assert share == pytest.approx(expected[off].attrs["pattern"], abs=2e-6)
        percent = re.search(r"gives ([\d.]+)%", why)
        assert percent and float(percent[1]) == pytest.approx(100 * expected[off].attrs["pattern"], abs=0.51)
    assert before[2] != after[2] and "→" in after[2]
    assert [atlas.bounding_box(), canvas.bounding_box()] == places
    assert query(page)["off"] == ["L0H1"] and query(page)["head"] == ["2"]
    page.keyboard.down("Shift")
    atlas.click(position={"x": 30, "y": 60})  # anywhere on a tile
    page.keyboard.up("Shift")
    expect(page.get_by_text("Without L0H0 and L0H1: they write nothing")).to_be_visible()
    settle(page)
    page.reload()
    settle(page)
    expect(page.get_by_text("Without L0H0 and L0H1: they write nothing")).to_be_visible()
