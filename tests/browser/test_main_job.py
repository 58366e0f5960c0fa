"""The main job in a real browser: a real run, the real server. Look at a head, type a prompt, switch heads off."""

import re

import pytest
from playwright.sync_api import expect

import tracer
from tests.browsing import metrics, query, settle

pytestmark = pytest.mark.slow


def test_look_choose_prompt_ablate(page, server, folder):
    page.goto(f"{server}/heads?run=toy")
    settle(page)
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()

    # The strongest induction head is in focus; the arrow keys move to another one, and the address remembers it.
    atlas = page.get_by_role("application", name=re.compile("attention heads"))
    atlas.focus()
    expect(page.get_by_role("heading", name=re.compile(r"L1H\d on this prompt"))).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("heading", name=re.compile(r"L0H\d on this prompt"))).to_be_visible()
    settle(page)
    assert query(page)["layer"] == ["0"]

    # A prompt of one's own: every token is there, and the pattern is of that length.
    page.get_by_role("textbox", name="Prompt").fill("5 7 9 11 5 7 9")
    page.get_by_role("textbox", name="Prompt").press("Control+Enter")
    settle(page)
    expect(page.get_by_role("application", name=re.compile("8 query rows, 8 key columns"))).to_be_visible()
    assert query(page)["prompt"] == ["5 7 9 11 5 7 9"]

    # A word outside the vocabulary, and a hostile one: said in words, never run.
    page.get_by_role("textbox", name="Prompt").fill('5 <img src=x onerror="alert(1)"> 7')
    page.get_by_role("textbox", name="Prompt").press("Control+Enter")
    settle(page)
    expect(page.get_by_text("not in the vocabulary")).to_be_visible()
    assert page.locator("img[src=x]").count() == 0
    page.get_by_role("textbox", name="Prompt").fill("5 7 9 11 5 7 9")
    page.get_by_role("textbox", name="Prompt").press("Control+Enter")
    settle(page)

    # Ablate: everything is on; off go the induction heads, and the loss on repeated tokens goes up.
    page.get_by_role("link", name="Ablate").click()
    settle(page)
    expect(page.get_by_text("All heads on").first).to_be_visible()
    before = metrics(page, "All heads on")
    page.get_by_role("button", name="Induction heads").click()
    settle(page)
    after = metrics(page, "After", "Change")
    assert before["All heads on"] < 1.5  # of ln 64 = 4.2; its rows have fillers that training had not
    assert after["After"] > after["Before"] + 1
    assert query(page)["off"][0].startswith("L1H")

    # One more by hand, through the grid: the numbers change again.
    page.get_by_role("button", name=re.compile("^Switch off L0H0")).click()
    settle(page)
    assert "L0H0" in query(page)["off"][0]
    assert metrics(page, "After", "Change")["After"] != after["After"]

    # The link opens the same view in another tab.
    link, shown = page.url, metrics(page, "After", "Change")
    page.goto("about:blank")
    page.goto(link)
    settle(page)
    assert metrics(page, "After", "Change") == shown


def test_a_run_is_swept_and_a_head_is_put_to_the_tests(page, server, folder):
    page.goto(f"{server}/ablate?run=toy&off=L0H0&section=when")
    settle(page)

    # Every snapshot is measured by a process of its own; its progress ends in curves and points.
    page.get_by_role("button", name=re.compile(r"^Measure \d+ snapshots")).click()
    points = page.locator(".st-key-when_scatter .scatterlayer .point")
    expect(points).to_have_count(8)
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    settle(page)
    assert tracer.open_run(folder / "checkpoints" / "toy").effects.sizes["mode"] == 3
    expect(page.get_by_text(re.compile(r"^L1H\d: its induction score rose (before|with|after)"))).to_be_visible()

    # A point takes its head into focus, and the card says what it is.
    points.nth(1).scroll_into_view_if_needed()
    box = points.nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".st-key-when_scatter .hovertext").first).to_contain_text("L0H1")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url(lambda url: "layer=0&head=1" in url)
    settle(page)
    assert (query(page)["layer"], query(page)["head"]) == (["0"], ["1"])
    page.get_by_role("button", name="Put L0H1 to the tests").click()
    expect(page.get_by_text(re.compile("^L0H1 of toy at step .* tests passed"))).to_be_visible()
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_long_prompt_is_dragged_over_and_read_exactly(page, server):
    page.goto(f"{server}/heads?run=long")
    settle(page)
    page.get_by_role("textbox", name="Prompt").fill(" ".join(str(1 + i * i % 61) for i in range(599)))
    page.get_by_role("textbox", name="Prompt").press("Control+Enter")
    settle(page)
    overview = page.get_by_role("application", name=re.compile("600 queries, 600 keys"))
    overview.scroll_into_view_if_needed()
    expect(page.get_by_text("Queries 472 to 599 look at keys 472 to 599.")).to_be_visible()
    box = overview.bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.6 * box["height"], steps=4)
    page.mouse.up()
    settle(page)
    said = page.get_by_text(re.compile(r"^Queries \d+ to \d+ look at keys \d+ to \d+\.$")).inner_text()
    first_query, last_query, first_key, last_key = map(int, re.findall(r"\d+", said))
    assert 200 < first_query < last_query < 400 and 20 < first_key < last_key < 250
    rows, columns = last_query - first_query + 1, last_key - first_key + 1
    expect(
        page.get_by_role("application", name=re.compile(f"{rows} query rows, {columns} key columns"))
    ).to_be_visible()


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("name", ["heads", "training", "gradients", "ablate"])
def test_every_page_of_somebody_elses_model_fits(page, server, name, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{server}/{name}?run=theirs")
    settle(page)
    assert page.get_by_test_id("stException").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
