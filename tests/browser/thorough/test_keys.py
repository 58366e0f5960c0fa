"""The keys of a page's timeline."""

import pytest
from playwright.sync_api import expect

from tests.browser.test_keys import says
from tests.browser.thorough.test_scrub import place, step
from tests.browsing import query, settle, visit

pytestmark = pytest.mark.slow


def test_brackets_move_the_step(page, server):
    visit(page, f"{server}/ablate?run=toy")
    last = place(page)
    for key, there in (("[", last - 1), ("[", last - 2), ("]", last - 1)):
        page.keyboard.press(key)
        settle(page)
        assert place(page) == there
    assert query(page)["step"] == [step(page)]
    page.get_by_role("combobox").first.focus()
    page.keyboard.press("[")
    settle(page)
    page.get_by_role("combobox").first.blur()
    assert place(page) == last - 1
    page.keyboard.press("?")
    panel = page.get_by_role("dialog", name="Keys")
    says(panel, "", "")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("textbox", name="Prompt")).to_be_focused()


@pytest.mark.parametrize("width", [1440, 390], ids=["cards", "swiped cards"])
def test_o_presses_the_switch_in_a_strip(page, server, width):
    page.set_viewport_size({"width": width, "height": 844})
    visit(page, f"{server}/training?run=toy&layer=1&head=2")
    page.locator(".st-key-strip_note").get_by_text("Every head on").wait_for()
    page.keyboard.press("o")
    expect(page.locator(".st-key-strip_note")).to_contain_text("Without L1H2")
    settle(page)
    assert query(page)["off"] == ["L1H2"]
    page.keyboard.press("o")
    expect(page.locator(".st-key-strip_note")).to_contain_text("Every head on")


def test_enter_reads_a_prompt_and_shift_enter_begins_a_line(page, server):
    visit(page, f"{server}/heads?run=toy")
    box = page.get_by_role("textbox", name="Prompt")
    box.fill("3 5 7")
    box.press("Shift+Enter")
    box.press_sequentially("3 5")
    box.press("Enter")
    expect(box).to_have_value("3 5 7\n3 5")
    page.wait_for_function("() => new URLSearchParams(location.search).get('prompt') === '3 5 7\\n3 5'")


def test_an_event_without_room_says_its_words_under_the_mouse(page, server):
    visit(page, f"{server}/training?run=toy")
    strip = page.get_by_role("slider", name="Step of training")
    over, box = strip.locator("canvas").nth(1), strip.bounding_box()
    drawn = "canvas => canvas.toDataURL()"
    before, seen = over.evaluate(drawn), set()
    for x in range(10, int(box["width"]) - 10, 5):
        page.mouse.move(box["x"] + x, box["y"] + 30)
        seen.add(over.evaluate(drawn))
    assert len(seen) > 1, "every event in turn is the one whose words are bold"
    page.mouse.move(box["x"] + 10, box["y"] + 300)
    page.wait_for_function("before => [...document.querySelectorAll('*')].some((node) =>"
                           " [...(node.shadowRoot?.querySelectorAll('[role=slider] canvas') ?? [])]"
                           ".some((one) => one.toDataURL() === before))", arg=before)  # fmt: skip


RESTS = """(box) => {
  box.dispatchEvent(new AnimationEvent("animationstart", { animationName: "prompt-rests", bubbles: true }));
  return [box.scrollLeft, box.scrollWidth - box.clientWidth];
}"""


def test_a_prompt_that_comes_to_rest_shows_its_end(page, server):
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, f"{server}/heads?run=toy&prompt={'+'.join(['50+57+59'] * 9)}")
    at, most = page.get_by_role("textbox", name="Prompt").evaluate(RESTS)  # tests let nothing move by itself
    assert 0 < most - 1 <= at
