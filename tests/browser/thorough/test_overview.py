"""Windows in a real browser: drag, click, touch and keys on the overview; exact cells and absent heads beside it."""

import itertools
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browsing import ROOT, served, settle

pytestmark = pytest.mark.slow
EDGES = 20, 38, 2
"""Pixels above, below and right of the overview's picture."""

SCRIPT = """
import numpy as np
import streamlit as st
from tracer.pictures import atlas, overview, pattern
from dashboard import theme
from dashboard.shared.mount import all_parts, draw

st.html(f"<style>{theme.STYLES.read_text('utf-8')}</style><i></i>")
all_parts()
state, causal = st.session_state, "cross" not in st.query_params
shares = np.zeros((320 if causal else 40, 320))
shares[201 if causal else 3, [0, 100]] = [0.17, 0.83]
tokens = [f"w{i}" for i in range(320)]
n_query, n_key = shares.shape
pooled = shares.reshape(n_query // 2, 2, 160, 2).max((1, 3))
blob = overview.pack(pooled, n_query=n_query, n_key=n_key, factor_q=2, factor_k=2, label="L0H1", causal=causal)
window = state.get("window", (0, min(64, n_query), 0, 64))
draw(overview.picture(blob, window=window, largest=64), key="overview", on_change=lambda v: state.update(window=v))
st.text(f"window {window}")
q0, q1, k0, k1 = window
where = {"key_tokens": tokens[k0:k1], "query_start": q0, "key_start": k0}
blob = pattern.pack(shares[q0:q1, k0:k1], tokens[q0:q1], causal=causal, **where)
draw(pattern.picture(blob, locked=state.get("lock")), key="pattern", on_change=lambda v: state.update(lock=v))
st.text(f"lock {state.get('lock')}")
thumbs = np.zeros((2, 3, 4, 4))
thumbs[0, 1] = np.nan
layers = {"causal": [True, False], "layer_names": ["<b>a</b>", "b"]}
blob = atlas.pack_thumbs(thumbs, {"score": np.full((2, 3), np.nan)}, n=4, **layers)
draw(atlas.picture(blob, selected=state.get("head", (0, 0))), key="atlas", on_change=lambda v: state.update(head=v))
st.text(f"head {state.get('head')}")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("overview")
    (folder / "app.py").write_text(SCRIPT, "utf-8")
    with served(folder / "app.py", folder, PYTHONPATH=str(ROOT)) as url:
        yield url


@pytest.fixture
def visit(browser, server):
    """Open the script; no script error may have happened by the end."""
    problems, contexts = [], []

    def visit(query: str = "", **options) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1000, "height": 1600}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{server}/{query}")
        picture(page).wait_for()
        settle(page)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []


def picture(page: Page) -> Locator:
    return page.get_by_role("application", name=re.compile("^Overview"))


def spot(page: Page, query: int, key: int, sizes: tuple[int, int] = (320, 320)) -> tuple[float, float]:
    """Where on the screen the middle of a (query, key) is; the picture is four times wider than high at most."""
    box = picture(page).bounding_box()
    assert box is not None
    above, below, right = EDGES
    high = box["height"] - above - below
    wide = high / max(0.25, sizes[0] / sizes[1])
    x = box["x"] + box["width"] - right - wide + (key + 0.5) * wide / sizes[1]
    return x, box["y"] + above + (query + 0.5) * high / sizes[0]


def expect_window(page: Page, *window: int) -> None:
    expect(page.get_by_text(f"window {window}", exact=True)).to_be_visible()
    q0, q1, k0, k1 = window
    expect(picture(page)).to_have_attribute("aria-label", re.compile(f"queries {q0}–{q1 - 1}, keys {k0}–{k1 - 1}$"))


def drag(page: Page, start: tuple[int, int], stop: tuple[int, int]) -> None:
    page.mouse.move(*spot(page, *start))
    page.mouse.down()
    page.mouse.move(*spot(page, *stop), steps=6)


def test_mouse_chooses_a_window(visit):
    page = visit()
    page.mouse.move(*spot(page, 201, 101))
    expect(page.get_by_text("queries 200–201 → keys 100–101: at most 0.83")).to_be_visible()
    page.mouse.move(*spot(page, 100, 201))
    expect(page.get_by_text("masked, later tokens", exact=True)).to_be_visible()

    for place, window in [
        ((200, 100), (169, 233, 69, 133)),
        ((310, 5), (256, 320, 0, 64)),
        ((50, 200), (19, 83, 19, 83)),  # a masked cell: as far as its query sees
    ]:
        page.mouse.click(*spot(page, *place))
        expect_window(page, *window)

    for start, stop, window in [
        ((150, 20), (170, 49), (150, 171, 20, 50)),
        ((170, 49), (150, 20), (150, 171, 20, 50)),
        ((100, 20), (250, 90), (187, 251, 27, 91)),  # at its largest it is pulled along
    ]:
        drag(page, start, stop)
        page.mouse.up()
        expect_window(page, *window)

    drag(page, (60, 10), (90, 30))
    page.keyboard.press("Escape")
    page.mouse.up()
    settle(page)
    expect_window(page, 187, 251, 27, 91)


def test_keys_move_and_zoom_the_window(visit):
    page = visit()
    picture(page).focus()
    for key, window in [
        ("End", (256, 320, 256, 320)),
        ("ArrowDown", (256, 320, 256, 320)),
        ("Home", (0, 64, 0, 64)),
        ("ArrowDown", (32, 96, 0, 64)),
        ("+", (48, 80, 16, 48)),
        ("-", (32, 96, 0, 64)),
        ("-", (32, 96, 0, 64)),
        ("ArrowRight", (32, 96, 32, 96)),
        ("ArrowRight", (32, 96, 64, 128)),
        ("ArrowRight", (32, 96, 64, 128)),  # beyond it, nothing but masked cells
    ]:
        page.keyboard.press(key)
        expect_window(page, *window)


def test_a_finger_sideways_draws_and_downwards_scrolls(visit):
    page = visit(viewport={"width": 390, "height": 500}, has_touch=True)
    device = page.context.new_cdp_session(page)

    def swipe(*places: tuple[int, int]) -> None:
        def touch(kind: str, *points: tuple[float, float]) -> None:
            at = [{"x": x, "y": y} for x, y in points]
            device.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

        route = [spot(page, *place) for place in places]
        touch("touchStart", route[0])
        for (x0, y0), (x1, y1) in itertools.pairwise(route):
            for part in (0.2, 0.4, 0.6, 0.8, 1.0):
                touch("touchMove", (x0 + part * (x1 - x0), y0 + part * (y1 - y0)))
        touch("touchEnd")

    swipe((100, 20), (100, 60), (150, 75))
    expect(page.get_by_text("window (0, 64, 0, 64)")).not_to_be_visible()
    numbers = re.findall(r"\d+", page.get_by_text(re.compile(r"^window \(")).inner_text())
    for got, wanted in zip(map(int, numbers), (100, 151, 20, 76), strict=True):
        assert abs(got - wanted) <= 2  # less than a pixel a token

    before = page.get_by_text(re.compile(r"^window \(")).inner_text()
    swipe((200, 20), (40, 22))
    settle(page)
    assert page.get_by_text(re.compile(r"^window \(")).inner_text() == before
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") > 40


def test_window_shows_true_positions(visit):
    page = visit()
    page.mouse.click(*spot(page, 200, 100))
    name = "64 query rows, 64 key columns, queries 169 to 232, keys 69 to 132"
    expect(page.get_by_role("application", name=re.compile(name))).to_be_visible()
    page.get_by_role("button", name="query 201: w201").click()
    expect(page.get_by_text("lock (201, 100)")).to_be_visible()
    page.mouse.move(0, 0)
    expect(page.get_by_text("query “w201” (201) → key “w100” (100): 0.830").first).to_be_visible()
    page.get_by_role("application", name=re.compile("^Attention pattern")).focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("lock (201, 99)")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("lock None")).to_be_visible()


def test_flat_window_of_cross_attention(visit):
    page = visit("?cross")
    page.mouse.click(*spot(page, 5, 100, sizes=(40, 320)))
    expect_window(page, 0, 40, 69, 133)
    name = "40 query rows, 64 key columns, queries 0 to 39, keys 69 to 132"
    expect(page.get_by_role("application", name=re.compile(name))).to_be_visible()
    page.get_by_role("button", name="key 100: w100").click()
    expect(page.get_by_text("lock (3, 100)")).to_be_visible()
    page.mouse.move(0, 0)
    expect(page.get_by_text("query “w3” (3) → key “w100” (100): 0.830").first).to_be_visible()


def test_a_head_that_is_not_there_cannot_be_chosen(visit):
    page = visit()
    atlas = page.get_by_role("application", name=re.compile("^5 attention heads in 2 layers"))
    atlas.focus()
    for key, head in [("ArrowRight", (0, 2)), ("ArrowDown", (1, 2)), ("ArrowLeft", (1, 1)), ("End", (1, 2))]:
        page.keyboard.press(key)
        expect(page.get_by_text(f"head {head}", exact=True)).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")  # L0H1 is missing
    expect(page.get_by_text("head (1, 1)", exact=True)).to_be_visible()
    box = atlas.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 4)
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    expect(page.get_by_text("<b>a</b>", exact=True)).to_be_visible()
    expect(page.locator(".tip dd").first).to_have_text("–")
    expect(page.get_by_text("head (1, 1)", exact=True)).to_be_visible()
