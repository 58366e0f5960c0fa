"""Gradients in a browser: what is followed is ticked, framed and in the link, and numbers have room in their cells."""

import re

import pytest
from playwright.sync_api import expect

from tests.browsing import SIZES, query, settle, visit

pytestmark = pytest.mark.slow
TICKED = "[data-testid=stDataFrame] table tr[aria-selected=true]"
CRAMPED = """() => [...document.querySelectorAll('[class*="st-key-me-heads_W_"] *')].filter((node) => node.shadowRoot)
  .flatMap((node) => [...node.shadowRoot.querySelectorAll(".cell span:not(.sr)")])
  .map((span) => { const text = document.createRange(); text.selectNodeContents(span);
    return [span.textContent, span.closest("td").clientWidth - text.getBoundingClientRect().width]; })"""


def test_the_followed_tensor_is_ticked_and_in_the_link(page, server):
    visit(page, f"{server}/gradients?run=toy&quantity=grad_norm&tensor=blocks.1.attn.W_V")
    unfold = page.locator(".st-key-tensors summary")
    unfold.click()
    expect(page.locator(TICKED)).to_have_text(re.compile("^L1 W_V"))
    curves = page.locator(".st-key-me-tensor_curves")
    curves.locator("[tabindex='0']").first.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url(lambda url: "W_V" not in url)
    settle(page)
    name = query(page)["tensor"][0]
    expect(page.get_by_text(name, exact=True)).to_be_visible()
    short = name.replace("blocks.", "L").replace(".attn.", " ")
    expect(page.locator(TICKED)).to_have_text(re.compile(f"^{re.escape(short)}"))
    page.reload()
    settle(page)
    unfold.click()
    assert query(page)["tensor"] == [name] and query(page)["quantity"] == ["grad_norm"]
    expect(page.locator(TICKED)).to_have_text(re.compile(f"^{re.escape(short)}"))


@pytest.mark.parametrize("quantity", ["update_ratio", "weight_norm"])
def test_numbers_of_heads_have_room_and_a_press_takes_a_head(page, server, quantity):
    visit(page, f"{server}/gradients?run=toy&layer=0&head=0&quantity={quantity}")
    page.locator(".headmap .pick").first.wait_for()
    for width in SIZES:
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        cells = page.evaluate(CRAMPED)
        assert len(cells) == 4 * 2 * 4 and all(re.fullmatch(r"\d+(\.\d+)?(e−?\d+)?", text) for text, _ in cells)
        assert min(room for _, room in cells) >= 8  # four pixels on either side
        expect(page.locator(".headmap .legend .name:visible")).to_have_count(1)
    page.locator(".st-key-me-heads_W_V").get_by_role("button", name=re.compile("^L1H2 ")).click()
    settle(page)
    assert (query(page)["layer"], query(page)["head"]) == (["1"], ["2"])
    expect(page.locator(".headmap").get_by_role("button", pressed=True)).to_have_count(4)
