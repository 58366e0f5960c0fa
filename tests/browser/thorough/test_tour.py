"""The tour done by hand in a real browser, with its card in view and its key, at a width that changes."""

import re

import pytest
from playwright.sync_api import expect

import tracer
from tests.browsing import SIZES, query, settle, sideways, visit

pytestmark = pytest.mark.slow


def test_the_six_steps(page, server, folder):
    trace = tracer.open_run(folder / "checkpoints" / "toy").trace
    scores = trace["induction"].values[-1]
    best = "L{}H{}".format(*divmod(int(scores.argmax()), scores.shape[1]))
    card, following = page.locator(".st-key-tour"), page.get_by_role("button", name="Next", exact=True)

    def arrived(step, name="Heads"):
        expect(card.get_by_role("img", name=f"Step {step} of 6")).to_be_visible()
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
        settle(page)
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == 0
        for width in (390, 1440):
            page.set_viewport_size({"width": width, "height": SIZES[width]})
            settle(page)
            assert sideways(page) == []

    def done():
        expect(card.get_by_text(re.compile("^✓"))).to_be_visible()

    visit(page, f"{server}/")
    page.get_by_role("button", name="Take the tour").first.click()
    arrived(1)
    focus_on(page, best)
    done()
    following.click()
    arrived(2)
    assert query(page)["step"] == ["0"]
    for _ in range(20):
        for _ in range(3):
            page.keyboard.press("]")
        settle(page)
        if following.is_visible():
            break
    done()
    following.click()
    arrived(3)

    # A text box keeps the letter that goes on elsewhere.
    box = page.get_by_role("textbox", name="Prompt")
    box.press("End")
    page.keyboard.press("n")
    assert "n" in box.input_value() and query(page)["tour"] == ["3"]
    box.fill("5 7 9 11 5 7 9")
    box.press("Control+Enter")
    settle(page)
    page.get_by_role("radio", name="7 9").click()
    done()
    following.click()
    arrived(4)
    card.get_by_text("Nothing to speak of").click()
    settle(page)
    following.click()
    arrived(5, "Ablate")
    expect(page.locator(".st-key-me-strip").get_by_role("application")).to_have_attribute(
        "aria-label", re.compile(f"Selected {best}")
    )
    page.keyboard.press("o")
    done()
    expect(card.get_by_text(re.compile("nats .95 % interval"))).to_be_visible()
    page.keyboard.press("n")
    arrived(6, "Training")
    page.keyboard.press("n")  # the last step trains, which no key begins
    settle(page)
    assert query(page)["tour"] == ["6"]
    expect(card.get_by_role("button", name=re.compile("^Train it"))).to_be_enabled()
    card.get_by_role("button", name="Close").click()
    expect(card).to_have_count(0)
    page.keyboard.press("n")  # and there is no tour to go on with
    settle(page)
    assert "tour" not in query(page)


def focus_on(page, label):
    """With the arrow keys, from the first of two layers."""
    atlas = page.get_by_role("application", name=re.compile("attention heads"))
    atlas.focus()
    for key in ["Home", "ArrowUp", "Home", *["ArrowDown"] * int(label[1]), *["ArrowRight"] * int(label[3])]:
        page.keyboard.press(key)
        settle(page)


def test_the_card_stays_in_view_where_there_is_room(page, server):
    card = page.locator(".st-key-tour")
    for width in SIZES:
        page.set_viewport_size({"width": width, "height": 900})
        visit(page, f"{server}/heads?run=toy&tour=3&layer=1&head=0")
        page.get_by_role("heading", name="What each token looks at").scroll_into_view_if_needed()
        page.evaluate("document.querySelector('[data-testid=stMain]').scrollBy(0, 600)")
        settle(page)
        (expect(card).to_be_in_viewport if width == 1440 else expect(card).not_to_be_in_viewport)()
