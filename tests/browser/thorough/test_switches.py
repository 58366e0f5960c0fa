"""A click on a head's switch changes pattern, guesses and the reason to what Python computes, and moves nothing."""

import re

import pytest
import torch
from playwright.sync_api import expect

import tracer
from tests.browser.thorough.test_find import heads, press
from tests.browsing import number, query, settle, visit
from tracer import data
from tracer.analysis.max_activating import rows_of_text, search, strongest, typical

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
            page.locator(".st-key-next_token .next").inner_text(),
        )

    atlas = page.locator(".st-key-me-atlas canvas").first
    page.locator("h1").scroll_into_view_if_needed()
    before, places = said(), [atlas.bounding_box(), canvas.bounding_box()]
    expect(page.locator(".st-key-why_said")).to_be_in_viewport()  # its first line, however far down the pattern goes
    atlas.click(position=on_tile(0, 1, places[0]))
    expect(page.locator(".st-key-of_a_step")).to_contain_text("Without L0H1, ")
    after = said()
    for off, (share, why, _) in ((False, before), (True, after)):
        assert share == pytest.approx(expected[off].attrs["pattern"], abs=2e-6)
        brief = re.search(r"([\d.]+) of its attention", why)
        assert brief and float(brief[1]) == pytest.approx(expected[off].attrs["pattern"], abs=0.0051)
    assert before[2] != after[2] and "→" in after[2]
    assert [atlas.bounding_box(), canvas.bounding_box()] == places
    assert query(page)["off"] == ["L0H1"] and query(page)["head"] == ["2"]
    page.keyboard.down("Shift")
    atlas.click(position={"x": 30, "y": 60})  # anywhere on a tile
    page.keyboard.up("Shift")
    expect(page.locator(".st-key-of_a_step")).to_contain_text("Without L0H0 and L0H1, ")
    settle(page)
    page.reload()
    settle(page)
    expect(page.locator(".st-key-of_a_step")).to_contain_text("Without L0H0 and L0H1, ")


def test_a_click_on_circuits(page, server, folder):
    run, at = tracer.open_run(folder / "checkpoints" / "toy"), 5
    tokens = torch.tensor([[run.about.bos, *map(int, PROMPT.split())]])
    visit(page, f"{server}/circuits?run=toy&layer=0&head=1&token={at}&prompt={PROMPT.replace(' ', '+')}")
    composition, parts = page.locator(".st-key-me-composition"), page.locator(".st-key-me-logit_heads")
    strip = page.locator(".st-key-me-strip").get_by_role("application")

    def said():
        settle(page)
        cells = [number(text) for text in parts.locator("td.cell span:not(.sr)").all_inner_texts()]
        return cells, " ".join(page.locator(".st-key-next_token .next").inner_text().split())

    before, places = said(), [one.bounding_box() for one in (strip, composition, parts)]
    strip.focus()
    page.keyboard.press("o")
    expect(page.get_by_text("Without L0H1, on")).to_be_visible()
    after = said()
    for (cells, _), model in ((before, run.model()), (after, cut(run.model(), 0, 1))):
        found = tracer.logit_attribution(model, tokens).heads.sel(pos=at).squeeze("batch").values.ravel()
        assert cells == pytest.approx(found.tolist(), abs=0.0051)
    assert before[0] != after[0] and after[0][1] == 0
    with torch.no_grad():
        now, then = (one(tokens)[0, -1].softmax(-1) for one in (cut(run.model(), 0, 1), run.model()))
    best = int(now.argmax())
    assert f"{float(then[best]):.2f} → {float(now[best]):.2f}".replace("0.00", "<.01") in after[1]
    assert "→" not in before[1]
    for old, new in zip(places, [one.bounding_box() for one in (strip, composition, parts)], strict=True):
        assert (new["x"], new["y"]) == pytest.approx((old["x"], old["y"]), abs=2)
    assert page.locator(".bipartite").get_by_role("button", name="L0H1, off").count() == 1
    assert query(page)["off"] == ["L0H1"]
    page.get_by_role("button", name="All heads on").click()
    expect(page.get_by_text("Without L0H1, on")).to_have_count(0)
    assert said() == before and "off" not in query(page)
    page.keyboard.press("o")
    expect(page.get_by_text("Without L0H1, on")).to_be_visible()
    assert said() == after and query(page)["off"] == ["L0H1"]


def test_a_click_on_find(page, server, folder):
    run = tracer.open_run(folder / "checkpoints" / "toy")
    n_ctx = run.config.model.n_ctx
    tokens = data.build(run.config.data, n_ctx, run.config.seed).val(rows_of_text(n_ctx))[:, :n_ctx]
    visit(page, f"{server}/find?run=toy&layer=1&head=2")
    ranking = page.locator(".st-key-ranking")

    def scores():
        settle(page)
        return [float(text) for text in page.locator(".passages li .num").all_inner_texts()]

    def expected(model):
        found = search(model, tokens)
        hits = strongest(found, "sharpest", (1, 2)) + typical(found, "sharpest", (1, 2))
        return pytest.approx([hit.score for hit in hits], abs=0.0051)

    before, ranked = scores(), heads(page)
    assert before == expected(run.model())
    press(page, ranked.index("L0H1"))
    expect(page.get_by_role("heading", name="Where L0H1 looks")).to_be_visible()
    settle(page)
    place = ranking.bounding_box()
    page.keyboard.press("o")
    expect(page.get_by_text("Searched without L0H1:")).to_be_visible()
    settle(page)
    assert ranking.bounding_box() == place and query(page)["off"] == ["L0H1"]
    press(page, ranked.index("L1H2"))
    expect(page.get_by_role("heading", name="Where L1H2 looks")).to_be_visible()
    after = scores()
    assert after == expected(cut(run.model(), 0, 1)) and after != before and heads(page) == ranked
    page.get_by_role("button", name=re.compile("^Open this passage on Heads")).first.click()
    expect(page.locator(".st-key-of_a_step")).to_contain_text("Without L0H1, ")


def test_the_strip_of_a_page_of_records(page, server):
    """Its switch changes the patterns and nothing below; a key takes another head into focus, on the charts too."""
    visit(page, f"{server}/training?run=toy&layer=1&head=2&prompt={PROMPT.replace(' ', '+')}")
    canvas = page.locator(".st-key-me-strip canvas").first
    box = canvas.bounding_box()
    wide = (box["width"] - 4 + 8) // 8 - 8
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    facts = page.locator(".st-key-facts").inner_text()
    canvas.click(position={"x": 2 + 1 * (wide + 8) + wide - 19, "y": 2 + 13})
    expect(page.get_by_text("Without L0H1, on ")).to_be_visible()
    settle(page)
    assert query(page)["off"] == ["L0H1"] and query(page)["head"] == ["2"]
    assert canvas.evaluate("canvas => canvas.toDataURL()") != before and canvas.bounding_box() == box
    assert page.locator(".st-key-facts").inner_text() == facts
    canvas.press("o")  # the head in focus
    expect(page.get_by_text("Without L0H1 and L1H2, on ")).to_be_visible()
    canvas.press("ArrowLeft")
    expect(canvas).to_have_attribute("aria-label", re.compile("Selected L1H1"))
    settle(page)
    assert query(page)["head"] == ["1"]
    page.get_by_role("button", name="All heads on").click()
    expect(page.get_by_text("Every head on “")).to_be_visible()
    settle(page)
    assert "off" not in query(page)
