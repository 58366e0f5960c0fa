"""Comparing in a real browser: two copies of the toy run, one cross hair, a link that opens the same view again."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import tracer
from tests.browsing import number, query, settle, sideways
from tracer.data import encode_prompt
from tracer.interventions.edits import recording
from tracer.pictures import versus
from tracer.pictures.page import Mount, document

pytestmark = pytest.mark.slow
PROMPT = "5 7 9 11 5 7 9 11"


@pytest.fixture(scope="module", autouse=True)
def twin(folder):
    """The toy again, as `twin`, for as long as these tests."""
    directory = shutil.copytree(folder / "checkpoints" / "toy", folder / "checkpoints" / "twin")
    yield
    shutil.rmtree(directory)


def pattern(run, step, layer, head):
    """From the explicit matrices, [query_pos key_pos]."""
    ids = encode_prompt(run.tokenizer, PROMPT, 64, run.about.bos).tokens
    with torch.no_grad(), recording(f"blocks.{layer}.attn.hook_pattern") as seen:
        run.model(step)(torch.tensor([ids]))
    return seen[f"blocks.{layer}.attn.hook_pattern"][0, head].numpy()


def readout(page):
    """Numbers of the shared line: A, B, change."""
    page.wait_for_function(
        "() => [...document.querySelectorAll('*')].some((e) => e.shadowRoot?.querySelector('.versus .readout .num'))"
    )
    return [number(text) for text in page.locator(".versus .readout .num").all_inner_texts()]


def panel(page, name):
    return page.get_by_role("application", name=name)


def point(page, canvas, q, k):
    """The mouse over a cell, found as a reader does: by moving until the line names it."""
    box = canvas.bounding_box()
    for y in np.arange(12, box["height"], 9.0):
        for x in np.arange(20, box["width"], 9.0):
            page.mouse.move(box["x"] + x, box["y"] + y)
            text = page.locator(".versus .readout").inner_text()
            if re.search(rf"\({q}\) → .*\({k}\)", text):
                return
    raise AssertionError(f"no cell {q}, {k}: {text}")


def test_choose_a_run_and_see_that_copies_are_equal(page, server):
    page.goto(f"{server}/heads?run=toy&prompt={PROMPT}")
    settle(page)
    expect(page.locator(".versus")).to_have_count(0)
    page.get_by_role("button", name="Compare with").click()
    page.get_by_test_id("stPopoverBody").get_by_role("combobox", name=re.compile("^Run")).click()
    page.get_by_role("option", name="twin").click()
    settle(page)
    page.keyboard.press("Escape")
    assert query(page)["compare"] == ["twin"]
    expect(page.locator(".versus figure")).to_have_count(3)
    expect(page.locator(".versus")).to_contain_text("nothing changed")
    assert page.locator(".versus").bounding_box()["width"] > 800 and sideways(page) == []

    # A file of it holds every cell that is not masked: 9 queries see 1 to 9 keys.
    page.locator(".part.versus").hover()
    with page.expect_download() as saved:
        page.locator(".part.versus").get_by_text("CSV", exact=True).click()
    lines = Path(saved.value.path()).read_text("utf-8-sig").splitlines()
    assert lines[0] == "query,key,A,B,B − A" and len(lines) == 46
    assert {line.rsplit(",", 1)[1] for line in lines[1:]} == {"0.00000"}

    page.get_by_role("button", name="Stop comparing").click()
    settle(page)
    expect(page.locator(".versus")).to_have_count(0)
    assert "compare" not in query(page)


def test_where_nothing_changed_there_is_no_scale_of_changes(page):
    side = versus.Side("L0H0", np.eye(2), ["a", "b"], ["a", "b"])
    body = '<div class="mount st-key-both"><div class="part versus"></div></div>'
    mounts = [Mount("both", versus.picture(versus.pack(side, side)))]
    page.set_content(document("Two", "", body, mounts, about={"run": "toy", "step": 0, "head": [0, 0]}, foot=""))
    expect(page.locator(".versus")).to_contain_text("nothing changed")
    expect(page.locator(".versus .legend").nth(1)).to_have_css("display", "none")  # what it said before is stale


def test_one_cross_hair_for_all_panels_and_the_pattern(page, server, folder):
    toy = tracer.open_run(folder / "checkpoints" / "toy")
    page.goto(f"{server}/heads?run=toy&prompt={PROMPT}&compare=twin&other_step=0&layer=1&head=2")
    settle(page)
    change = panel(page, "Change from A to B")
    change.scroll_into_view_if_needed()
    settle(page)  # a picture that is drawn late, out of view, moves what is in view
    point(page, change, 6, 2)
    a, b = (pattern(toy, step, 1, 2)[6, 2] for step in (toy.steps[-1], 0))
    np.testing.assert_allclose(readout(page), [a, b, b - a], atol=6e-4)
    # The pattern above shows the same cell, and releases it with the mouse.
    expect(page.locator(".pattern .readout")).to_contain_text("(6) → key")
    page.mouse.move(5, 5)
    expect(page.locator(".versus .readout")).to_contain_text("Point at a cell")

    # And the other way round: a cell of the pattern is shown in all three panels.
    own = page.get_by_role("application", name=re.compile("^Attention pattern of"))
    own.scroll_into_view_if_needed()
    settle(page)
    box = own.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.6)
    assert len(readout(page)) == 3

    # Keys hold a cell; it is still held when another head is looked at, and Escape lets it go.
    page.mouse.move(5, 5)
    change.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    settle(page)
    held = page.locator(".versus .readout").inner_text()
    assert "query" in held
    cell = page.get_by_role("button", name=re.compile(r"^L0H3 · Attention moved"))
    cell.click()
    settle(page)
    assert query(page)["layer"] == ["0"] and query(page)["head"] == ["3"]
    expect(cell).to_have_attribute("aria-pressed", "true")
    words = held.splitlines()[0]
    expect(page.locator(".versus .readout")).to_contain_text(words)
    expect(page.locator(".versus figcaption").nth(1)).to_contain_text("L0H3 of twin, step 0")
    panel(page, re.compile("^A: attention")).focus()
    page.keyboard.press("Escape")
    expect(page.locator(".versus .readout")).to_contain_text("Point at a cell")

    # The link opens the same comparison in another tab.
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    settle(page)
    expect(page.locator(".versus figcaption").nth(1)).to_contain_text("L0H3 of twin, step 0")


def test_two_prompts_are_two_panels_that_stack_on_a_phone(page, server):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server}/heads?run=toy&prompt={PROMPT}&other_prompt=3 4 3 4 3")
    settle(page)
    boxes = [figure.bounding_box() for figure in page.locator(".versus figure").all()]
    assert len(boxes) == 2 and boxes[0]["x"] == boxes[1]["x"] and boxes[1]["y"] > boxes[0]["y"] + 100
    expect(page.get_by_text("Two different prompts (9 tokens in A, 6 in B)")).to_be_visible()
    assert sideways(page) == []
