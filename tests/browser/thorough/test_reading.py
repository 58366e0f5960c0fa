"""The token view in a real browser: mouse, keys and options against numbers, hostile tokens, many heads, both pages."""

import re

import numpy as np
import pytest
import torch
from playwright.sync_api import Locator, Page, expect

import tracer
from tests.browsing import READY, ROOT, query, served, settle
from tracer.analysis.prompt_attention import look

pytestmark = pytest.mark.slow

SCRIPT = """
import numpy as np
import streamlit as st
from tracer.pictures import token_view
from dashboard import theme
from dashboard.shared.mount import all_parts, draw

st.html(f"<style>{theme.STYLES.read_text('utf-8')}</style><i></i>")
all_parts()
state, want = st.session_state, st.query_params.get("show", "small")
if want == "hostile":
    tokens = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", "\\u202eevil", "\\0", "\\n",
              "👩\\u200d🔬", "x" * 300, "\\t",
              "שלום"]
elif want == "large":
    tokens = [f" w{i}" + "\\n    " * (i % 9 == 8) for i in range(256)]
else:
    tokens = ["def", " f", "(", "x", "):", "\\n    ", "return", " x"]
layers, heads = (12, 12) if want == "large" else (2, 3)
n = len(tokens)
p = np.tril(np.random.default_rng(0).random((layers, heads, n, n))) ** 4
p /= p.sum(-1, keepdims=True)
if want == "small":
    p[1, 2, 7] = [0.5, 0, 0, 0.4, 0, 0.1, 0, 0]
    p[0, 1, 7] = [0, 0, 0, 0, 0, 0, 0.25, 0.75]
norms = np.ones((layers, heads, n))
norms[..., 5] = 4
token, head = state.get("pick", (None, (1, 2)))
blob = token_view.pack(lambda l, h: p[l, h], tokens, there=np.ones((layers, heads)), causal=[True] * layers,
                          norms=None if want == "bare" else norms, layer=head[0])
draw(token_view.picture(blob, token=token, head=head), key="view", on_change=lambda pick: state.update(pick=pick))
st.text(f"pick {state.get('pick')}")
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The address of a page with nothing but the token view."""
    folder = tmp_path_factory.mktemp("reading")
    (folder / "app.py").write_text(SCRIPT, "utf-8")
    with served(folder / "app.py", folder, PYTHONPATH=str(ROOT)) as url:
        yield url


@pytest.fixture
def visit(browser, alone):
    """A tab on that page; it must not log an error or open a dialog."""
    opened = []

    def go(show: str, **options) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        page, problems = context.new_page(), []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        opened.append((context, problems))
        page.goto(f"{alone}/?show={show}")
        page.wait_for_selector(READY)
        page.locator(".token_view .token").first.wait_for()
        return page

    yield go
    for context, problems in opened:
        assert problems == []
        context.close()


def token(page: Page, i: int) -> Locator:
    return page.locator(".token_view .token").nth(i)


def expect_said(page: Page, text: str) -> None:
    expect(page.locator(".token_view .readout")).to_have_text(text)


def square(page: Page, layer: int, head: int, heads: int = 3) -> tuple[float, float]:
    """The middle of a head's square on the screen."""
    box = page.locator(".token_view canvas").bounding_box()
    assert box is not None
    width = (box["width"] - 26) / heads
    return box["x"] + 24 + (head + 0.5) * width, box["y"] + 18 + 43 * layer + 20


def test_pointing_says_and_shades(visit):
    page = visit("small")
    assert page.locator(".token_view .text").evaluate("e => e.textContent") == "def f(x):\n    return x"
    one, two = token(page, 0).bounding_box(), token(page, 6).bounding_box()
    assert one and two and two["y"] > one["y"] + 15 and two["x"] > one["x"] + 20  # the next line, indented
    token(page, 3).hover()
    token(page, 7).hover()
    expect_said(page, "“·x” (7) through L1H2 looks most at “def” (0) 0.50, then “x” (3) 0.40, then “⏎····” (5) 0.10")
    shaded = [token(page, i).evaluate("e => e.style.background") != "" for i in range(8)]
    assert shaded == [True, False, False, True, False, True, False, False]
    page.get_by_role("button", name="Value-weighted").click()
    token(page, 7).hover()
    expect_said(page, "“·x” (7) through L1H2 looks most at “def” (0) 0.38, then “x” (3) 0.31, then “⏎····” (5) 0.31")
    page.get_by_role("button", name="Without the first token").click()
    token(page, 7).hover()
    expect_said(
        page,
        "“·x” (7) through L1H2 looks most at “x” (3) 0.50, then “⏎····” (5) 0.50"
        " · 38 % went to the first token and is left out",
    )
    page.get_by_role("button", name="Attention", exact=True).click()
    token(page, 7).hover()
    expect_said(
        page,
        "“·x” (7) through L1H2 looks most at “x” (3) 0.80, then “⏎····” (5) 0.20"
        " · 50 % went to the first token and is left out",
    )
    page.mouse.move(*square(page, 0, 1))  # another head, only looked through
    expect_said(
        page,
        "“·x” (7) through L0H1 looks most at “·x” (7) 0.75, then “return” (6) 0.25"
        " · 0 % went to the first token and is left out",
    )
    expect(page.get_by_text("pick None")).to_be_visible()


def test_all_heads_and_who_looks(visit):
    page = visit("small")
    p = np.tril(np.random.default_rng(0).random((2, 3, 8, 8))) ** 4
    p /= p.sum(-1, keepdims=True)
    p[1, 2, 7], p[0, 1, 7] = [0.5, 0, 0, 0.4, 0, 0.1, 0, 0], [0, 0, 0, 0, 0, 0, 0.25, 0.75]
    page.get_by_role("button", name="All heads").click()
    token(page, 7).hover()
    mean = p.mean((0, 1))[7]
    expect(page.locator(".readout")).to_contain_text(f"({mean.argmax()}) {mean.max():.2f}, then")
    page.get_by_role("button", name="L1H2").click()
    page.get_by_role("button", name="Who looks at it").click()
    token(page, 3).hover()
    column = p[1, 2, :, 3]
    expect(page.locator(".readout")).to_contain_text("“x” (3) through L1H2 is looked at most by")
    expect(page.locator(".readout")).to_contain_text(f"({column.argmax()}) {column.max():.2f}, then")


def test_holding_moving_and_releasing(visit):
    page = visit("small")
    token(page, 3).click()
    expect(page.get_by_text("pick (3, (1, 2))")).to_be_visible()
    page.mouse.move(0, 0)
    expect(token(page, 3)).to_have_attribute("aria-checked", "true")
    expect(page.locator(".readout")).to_contain_text("“x” (3) through L1H2")
    token(page, 3).focus()
    for key, pick in [
        ("ArrowRight", 4),
        ("ArrowLeft", 3),
        ("ArrowDown", 6),  # the line below
        ("ArrowRight", 7),
        ("ArrowUp", 5),  # the end of the line above
        ("End", 7),
        ("ArrowRight", 7),
        ("Home", 0),
    ]:
        page.keyboard.press(key)
        expect(page.get_by_text(f"pick ({pick}, (1, 2))")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("pick (None, (1, 2))")).to_be_visible()
    page.mouse.click(*square(page, 0, 1))
    expect(page.get_by_text("pick (None, (0, 1))")).to_be_visible()
    grid = page.get_by_role("application", name=re.compile("each of 6 heads"))
    grid.focus()
    for key, head in [("ArrowRight", (0, 2)), ("ArrowRight", (0, 2)), ("ArrowDown", (1, 2)), ("ArrowLeft", (1, 1))]:
        page.keyboard.press(key)
        expect(page.get_by_text(f"pick (None, {head})")).to_be_visible()


def test_hostile_tokens_stay_text(visit):
    page = visit("hostile", viewport={"width": 390, "height": 900})
    text = page.locator(".token_view .text")
    assert text.evaluate("e => e.querySelectorAll('script, img').length") == 0
    said = text.evaluate("e => e.textContent")
    assert "<script>alert(1)</script>" in said and "‹U+202E›evil" in said and "‹U+0000›" in said
    assert "\u202e" not in said and "x" * 119 + "…" in said
    for i in range(9):
        token(page, i).dispatch_event("pointerenter")
    page.get_by_text("Show as table").click()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert text.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_many_heads_show_one_layer_and_every_strongest_link(visit):
    page = visit("large")
    token(page, 40).click()
    expect(page.get_by_text("pick (40, (1, 2))")).to_be_visible()
    page.mouse.move(*np.add(square(page, 0, 3, heads=12), [0, -5]))
    expect(page.locator(".readout")).to_contain_text("“·w40” (40) through L0H3 looks most at")
    page.mouse.click(*np.add(square(page, 0, 3, heads=12), [0, -5]))
    expect(page.get_by_text("pick (40, (0, 3))")).to_be_visible()
    expect(page.locator(".readout")).to_contain_text(", then")  # its layer has arrived
    expect(page.locator(".token_view .token")).to_have_count(256)


TELL = """([topic, value]) => {
  if (value?.thumbs) value.thumbs = Uint8Array.from(value.thumbs);
  for (const listener of manyeyes.topics.get(topic).listeners) listener(value);
}"""


def test_it_follows_a_film_and_the_cursor_of_others(visit):
    page = visit("small")
    expect(page.locator(".readout")).to_contain_text("“·x” (7) through L1H2 looks most at “def” (0) 0.50")
    frame = {"step": 1250, "n": [8, 8], "rows": 8, "cols": 8, "layers": 2, "heads": 3}
    moving = np.zeros((2, 3, 8, 8), int)
    moving[..., 0], moving[1, 2, 7, 1:3] = 255, [128, 90]  # sqrt codes: 0.252, 0.125
    moving[1, 2, 7, 0] = 201  # 0.621
    page.evaluate(TELL, ["frame", {**frame, "thumbs": moving.ravel().tolist()}])
    expect_said(
        page, "step 1,250 · “·x” (7) through L1H2 looks most at “def” (0) 0.62, then “·f” (1) 0.25, then “(” (2) 0.12"
    )
    page.evaluate(TELL, ["frame", {**frame, "n": [600, 600], "thumbs": moving.ravel().tolist()}])  # blocks, not tokens
    expect(page.locator(".readout")).to_contain_text("“·x” (7) through L1H2 looks most at “def” (0) 0.50")
    page.evaluate(TELL, ["frame", None])
    page.evaluate(TELL, ["cursor", {"query": 6, "key": 2, "source": "another"}])
    expect(page.locator(".readout")).to_contain_text("“return” (6) through L1H2")
    expect(token(page, 6)).to_have_class(re.compile("focus"))
    expect(token(page, 2)).to_have_class(re.compile("other"))
    page.evaluate(TELL, ["cursor", None])
    expect(page.locator(".readout")).to_contain_text("“·x” (7) through L1H2 looks most at “def” (0) 0.50")


def test_without_values_there_is_nothing_to_weigh(visit):
    page = visit("bare")
    expect(page.get_by_role("button", name="Without the first token")).to_be_visible()
    expect(page.get_by_role("button", name="Value-weighted")).to_be_hidden()


def test_on_heads_a_link_carries_the_token(page, server, folder):
    page.goto(f"{server}/heads?run=toy&prompt=5+7+9+11+5+7+9&layer=1&head=2")
    settle(page)
    view = page.locator(".token_view")
    view.locator(".token").nth(5).click()
    settle(page)
    assert query(page)["token"] == ["5"]
    exact = page.get_by_text(re.compile(r"^L1H2, exactly: 5 “5” → "))
    run = tracer.open_run(folder / "checkpoints" / "toy")
    tokens = [run.about.bos, 5, 7, 9, 11, 5, 7, 9]
    row = look(run.model(run.steps[-1]), torch.tensor([tokens])).pattern(1, 2)[5]
    expect(exact).to_contain_text(f"→ {row.argmax()} ")
    expect(exact).to_contain_text(f"{row.max():.6f}")

    # The token under the mouse is marked in the matrix as well, and the other way round.
    view.locator(".token").nth(4).hover()
    expect(page.locator(".pattern .readout")).to_contain_text("query “11” (4)")
    page.mouse.move(0, 0)

    link = page.url
    page.goto("about:blank")
    page.goto(link)
    settle(page)
    expect(page.locator(".token_view .token").nth(5)).to_have_attribute("aria-checked", "true")
    page.set_viewport_size({"width": 390, "height": 844})
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
