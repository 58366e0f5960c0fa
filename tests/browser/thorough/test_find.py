"""The Find page in a real browser: rank, read, point, open a passage as a prompt; hostile tokens stay text."""

import json
import re
import shutil

import pytest
from playwright.sync_api import expect

import tracer
from dashboard.shared.plots import HEAD, ROW
from tests.browsing import query, settle, spot

pytestmark = pytest.mark.slow

HOSTILE = (
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "\u202erow", "\x00", "\n", "👩\u200d🚀",
    "x" * 300, "**b**", "[x](javascript:alert(1))", "$x$", ":material/x:", "   ", "\n        y", " " * 200,
)  # fmt: skip

CLEAR_AT_ONCE = """() => new MutationObserver((_, observer) => {
  const button = document.querySelector(".st-key-taken_clear button");
  if (button) { observer.disconnect(); button.click(); window.cleared = true; }
}).observe(document, { subtree: true, childList: true })"""


def heads(page):
    """The heads of the table, top down, which is unfolded for that."""
    folded = page.locator(".st-key-other_heads details:not([open]) summary")
    if folded.count():
        folded.click()
    expect(page.locator(".st-key-ranking tbody tr").first).to_be_attached()
    return page.locator(".st-key-ranking tbody tr td:first-of-type").all_text_contents()


def press(page, row):
    """Click on the name of a head, which is drawn on a canvas."""
    canvas = page.locator(".st-key-ranking canvas").first
    canvas.scroll_into_view_if_needed()  # waits until what unfolds stands still
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + 60, box["y"] + HEAD + ROW * (row + 0.5))


def test_rank_read_and_open(page, server):
    page.goto(f"{server}/find?run=toy")
    settle(page)
    first, *others = heads(page)
    assert len(others) == 7
    assert first.startswith("L1")
    ticked = page.locator(".st-key-ranking tr[aria-selected=true]")
    expect(ticked).to_contain_text(first)
    expect(page.get_by_role("heading", name=f"Where {first} looks")).to_be_visible()
    expect(page.locator(".passages li")).to_have_count(16)

    # The ranking stays in view while passages scroll.
    last = page.locator(".passages li").last
    last.evaluate("passage => passage.scrollIntoView({ block: 'end' })")  # no further: other parts follow below
    expect(page.locator(".st-key-ranking canvas").first).to_be_in_viewport()
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
    settle(page)

    # A press takes the head below, and the address says so.
    second = heads(page)[1]
    press(page, 1)
    expect(page.get_by_role("heading", name=f"Where {second} looks")).to_be_visible()
    settle(page)
    assert f"L{query(page)['layer'][0]}H{query(page)['head'][0]}" == second
    expect(ticked).to_contain_text(second)

    # Another measure ranks anew, here and in the address.
    page.get_by_role("combobox", name=re.compile("Rank heads by")).click()
    page.get_by_role("option", name="Previous-token attention").click()
    settle(page)
    assert query(page)["measure"] == ["previous_token"]
    best = heads(page)[0]
    press(page, 0)
    expect(page.get_by_role("heading", name=f"Where {best} looks")).to_be_visible()

    # That head looks one token back, and the token under the pointer says how much it gets.
    page.get_by_role("combobox", name=re.compile("Look for")).click()
    page.get_by_role("option", name="Token before").click()
    settle(page)
    card = page.locator(".passages li").first
    expect(card.locator(".top")).to_contain_text("1 token back")
    share = float(card.locator(".num").inner_text())
    card.locator(".key").hover()
    tip = page.locator(".passages .tip")
    expect(tip).to_contain_text("1 token back")
    assert float(tip.locator("dd").first.inner_text()) == pytest.approx(share, abs=0.006) and share > 0.5
    card.locator(".text").focus()
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("the token itself")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()

    # The link opens the same list; a passage becomes the prompt, and its query is held.
    page.goto(page.url)
    settle(page)
    expect(page.get_by_role("heading", name=f"Where {best} looks")).to_be_visible()
    token = card.locator(".query").inner_text()
    card.get_by_role("button", name=re.compile("^Open this passage on Heads")).click()
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    settle(page)
    words = page.get_by_role("textbox", name="Prompt").input_value().split()
    assert words[int(query(page)["token"][0]) - 1] == token  # the start token stands in front
    assert f"L{query(page)['layer'][0]}H{query(page)['head'][0]}" == best


def rename_tokens(directory, words):
    """As in a stranger's run: token i is called words[i], and no checksum says that it was not."""
    tokens, told = directory / "tokenizer.json", directory / "run.json"
    tokenizer = json.loads(tokens.read_text("utf-8"))
    for i, word in words.items():
        del tokenizer["model"]["vocab"][str(i)]
        tokenizer["model"]["vocab"][word] = i
    tokens.write_text(json.dumps(tokenizer), "utf-8")
    told.write_text(json.dumps({**json.loads(told.read_text("utf-8")), "digests": {}}), "utf-8")


def test_hostile_tokens_stay_text(page, server, folder):
    width = 390
    directory = shutil.copytree(folder / "checkpoints" / "toy", folder / "checkpoints" / "hostile find")
    rename_tokens(directory, dict(enumerate(HOSTILE, start=1)))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{server}/find?run=hostile find")
    settle(page)
    expect(page.locator(".passages .text").first).to_be_visible()
    text = "".join(page.locator(".passages .text").all_inner_texts())
    assert "<script>" in text and "‹U+202E›row" in text and "\u202e" not in text
    assert page.locator("img[src=x], .passages script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    box = page.locator(".passages").bounding_box()
    reach = "(all) => Math.max(...all.flatMap((node) => [...node.getClientRects()].map((rect) => rect.right)))"
    assert page.locator(".passages .text span").evaluate_all(reach) <= box["x"] + box["width"] + 3 <= width


def take_all(page):
    """Draw around every head."""
    page.mouse.move(*spot(page, "all_heads", 0.01, 0.01))
    page.mouse.down()
    for x, y in ((0.99, 0.01), (0.99, 0.99), (0.01, 0.99), (0.01, 0.02)):
        page.mouse.move(*spot(page, "all_heads", x, y), steps=3)
    page.mouse.up()


def test_a_lasso_takes_heads_to_the_atlas_and_to_ablate(page, server, folder):
    directory = folder / "checkpoints" / "drawn"
    shutil.copytree(folder / "checkpoints" / "toy", directory)
    tracer.survey(tracer.open_run(directory), tokens=2**10)
    page.goto(f"{server}/find?run=drawn&layer=0&head=1")
    settle(page)
    take_all(page)
    expect(page.get_by_text(re.compile("^8 heads: L0H0 L0H1"))).to_be_visible()
    assert query(page)["find"] == [" ".join(f"L{layer}H{head}" for layer in range(2) for head in range(4))]
    page.get_by_role("button", name="Clear", exact=True).click()
    settle(page)
    assert "find" not in query(page)

    # Cleared before the page is through, the outline is gone too: a smaller one within it is another set.
    page.evaluate(CLEAR_AT_ONCE)
    take_all(page)
    page.wait_for_function("() => window.cleared")
    settle(page)
    assert "find" not in query(page)
    point = page.locator(".st-key-all_heads .point").first
    box = point.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 7, y - 7)
    page.mouse.down()
    for dx, dy in ((7, -7), (7, 7), (-7, 7), (-7, -6)):
        page.mouse.move(x + dx, y + dy, steps=3)
    page.mouse.up()
    expect(page.get_by_text(re.compile("^[1-7] heads?: L0H0"))).to_be_visible()
    taken = query(page)["find"]
    page.get_by_role("button", name="Switch them off on Ablate").click()
    expect(page.get_by_role("heading", name="Ablate", exact=True)).to_be_visible()
    settle(page)
    assert query(page)["off"] == taken == query(page)["find"]
