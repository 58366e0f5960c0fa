"""The Circuits page in a real browser: edges and heads take focus, cells are read, hostile tokens stay text."""

import re
import shutil

import pytest
from playwright.sync_api import expect

from tests.browser.thorough.test_find import HOSTILE, rename_tokens
from tests.browsing import findings, query, settle, sideways, spot, tip

pytestmark = pytest.mark.slow


def head(page, label):
    return page.locator(".bipartite").get_by_role("button", name=re.compile(f"^{label}\\b"))


def middle(page, one, two):
    """Half way along the edge between two heads."""
    a, b = head(page, one).bounding_box(), head(page, two).bounding_box()
    return (a["x"] + a["width"] + b["x"]) / 2, (a["y"] + b["y"] + b["height"]) / 2


def test_edges_and_heads_take_focus(page, server):
    page.goto(f"{server}/circuits?run=toy&layer=0&head=0")
    settle(page)
    expect(page.get_by_role("heading", name="L0H0 in words")).to_be_visible()

    # Every edge is in the file: 4 heads read 4.
    page.locator(".bipartite").hover()
    with page.expect_download() as saved:
        page.locator(".bipartite .save").get_by_role("button", name=re.compile("CSV", re.IGNORECASE)).click()
    lines = saved.value.path().read_text("utf-8-sig").splitlines()
    assert lines[0].startswith("reader,read,score") and len(lines) == 17

    # The table names the strongest edge; a point on that edge says the same, and a click takes its reader.
    page.locator(".bipartite details summary").click()
    strongest = page.locator(".bipartite tbody tr").first
    expect(strongest).to_be_visible()
    settle(page)  # what unfolds moves the picture
    reader, read, score = strongest.locator("th, td").all_inner_texts()[:3]
    page.mouse.move(*middle(page, read, reader))
    told = page.locator(".bipartite .tip")
    expect(told.locator("b")).to_have_text(f"{reader} reads {read}")
    assert float(told.locator("dd").first.inner_text()) == pytest.approx(float(score), abs=6e-4)
    page.mouse.click(*middle(page, read, reader))
    expect(page.get_by_role("heading", name=f"{reader} in words")).to_be_visible()
    settle(page)
    assert f"L{query(page)['layer'][0]}H{query(page)['head'][0]}" == reader
    expect(head(page, reader)).to_have_attribute("aria-pressed", "true")

    # The arrow keys go from head to head, and only one of them is a stop of the tab key.
    head(page, reader).focus()
    page.keyboard.press("ArrowLeft")
    beside = f"L0H{reader[3:]}"
    expect(head(page, beside)).to_be_focused()
    expect(told).to_contain_text(beside)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"{beside} in words")).to_be_visible()
    expect(page.locator(".bipartite .head[tabindex='0']")).to_have_count(1)
    settle(page)

    # Another kind of composition is another picture of the same heads.
    before = page.locator(".bipartite [role=img]").get_attribute("aria-label")
    page.get_by_role("radio", name="Values").click()
    expect(page.locator(".bipartite [role=img]")).not_to_have_attribute("aria-label", before)

    # Its address, opened anew, is the same picture; and one click leads to what this head does in a text.
    settle(page)
    assert query(page)["into"] == ["v"]
    now = page.locator(".bipartite [role=img]").get_attribute("aria-label")
    page.reload()
    expect(page.locator(".bipartite [role=img]")).to_have_attribute("aria-label", now)
    expect(page.get_by_role("radio", name="Values")).to_be_checked()
    page.get_by_role("link", name=f"Where {beside} looks in text").click()
    expect(page.get_by_role("heading", name=f"Where {beside} looks")).to_be_visible()


def test_cells_points_and_tokens_are_read(page, server):
    page.goto(f"{server}/circuits?run=toy&prompt=5+7+9+5+7+9&layer=1&head=0")
    settle(page)
    page.mouse.move(*spot(page, "positions", 0.3, 0.98))
    expect(tip(page, "positions")).to_contain_text(re.compile(r"position 6\d → \d+, \d+ back"))

    folded = page.locator(".st-key-spectrum_numbers")
    folded.get_by_text("Show as table").click()
    expect(folded.locator("table")).to_have_attribute("aria-rowcount", "17")

    # A token is chosen: the head's share in the tooltip is the number in the grid.
    page.locator(".tokens .token").nth(3).click()
    expect(page.locator(".headmap caption", has_text="after token 3")).to_be_visible()
    settle(page)
    assert query(page)["token"] == ["3"]
    page.locator(".tokens .token").nth(3).hover()
    told = page.locator(".tokens .tip dd").inner_text()
    shown = page.locator(".headmap", has_text="after token 3").get_by_role("button", pressed=True).inner_text()
    assert float(told.replace("−", "-")) == pytest.approx(float(shown.replace("−", "-")), abs=0.006)


def test_hostile_tokens_stay_text(page, server, folder):
    directory = shutil.copytree(folder / "checkpoints" / "toy", folder / "checkpoints" / "hostile circuits")
    n = len(HOSTILE)
    rename_tokens(directory, {i: HOSTILE[i % n] + (str(i) if i >= n else "") for i in range(1, 65)})
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{server}/circuits?run=hostile circuits")
    settle(page)
    tables = page.locator("[class*=st-key-words_] tbody td")
    expect(tables.first).to_be_attached()
    text = "".join(tables.all_text_contents())
    assert "<script>" in text and "\u202e" not in text
    assert page.locator("img[src=x], [class*=st-key-words_] script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_what_is_explained_can_be_read(page, server):
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{server}/circuits?run=toy&prompt=5+7+9+5+7+9")
    settle(page)
    assert sideways(page) == []
    abouts = page.get_by_role("button", name="What is this?")
    expect(abouts.first).to_be_visible()
    assert findings(page) == []
    for about in abouts.all():
        about.click()
        expect(page.get_by_test_id("stPopoverBody")).to_contain_text("Source")
        assert findings(page, within="[data-testid=stPopover], [data-testid=stPopoverBody]") == []
        page.keyboard.press("Escape")
        expect(page.get_by_test_id("stPopoverBody")).to_be_hidden()
