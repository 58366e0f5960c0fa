"""What a page weighs: the bytes that a choice costs, and how far things move while it loads on a phone."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from dashboard.navigation import TITLES
from tests.browsing import MOVED, settle, tab

pytestmark = pytest.mark.slow


class Heard:
    """Every message of the server: its size, and of a component the bytes of script and style."""

    def __init__(self, page: Page) -> None:
        self.sizes: list[int] = []
        self.code = 0
        page.on("websocket", lambda socket: socket.on("framereceived", self.add))

    def add(self, frame: Any) -> None:
        message = ForwardMsg()
        message.ParseFromString(frame)
        self.sizes.append(len(frame))
        part = message.delta.new_element.bidi_component
        self.code += len(part.js_content) + len(part.css_content)

    def clear(self) -> None:
        self.sizes.clear()
        self.code = 0


def test_a_choice_costs_its_own_bytes_and_no_script(page, server):
    heard = Heard(page)
    page.goto(f"{server}/heads?run=toy&layer=0&head=0")
    settle(page)
    page.get_by_role("slider", name="Step of training").wait_for()
    settle(page)
    assert heard.code < 4000  # the scripts of all parts are bytes of one element
    page.keyboard.press("r")
    settle(page)
    heard.clear()
    page.keyboard.press("r")
    settle(page)
    assert 0 < sum(heard.sizes) < 18_000 and heard.code == 0  # Streamlit's own blocks and headers, and a hash each
    heard.clear()
    atlas = page.get_by_role("application", name=re.compile("attention heads"))
    atlas.focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert 0 < sum(heard.sizes) < 32_000 and heard.code < 1500


def test_little_moves_while_a_page_loads(browser, server):
    """In a wide window test_accessibility.py looks."""
    with tab(browser, server, viewport={"width": 390, "height": 844}) as page:
        page.add_init_script(MOVED)
        moved = {}
        for name in TITLES:
            page.goto(f"{server}/{name}?run=toy")
            settle(page)
            moved[name] = page.evaluate("moved")
        assert {name: round(value, 2) for name, value in moved.items() if value > 0.2} == {}
