"""What a reader asks for: its button is gone while the work is done, however long that takes."""

import pytest
from playwright.sync_api import expect

from tests.browsing import ROOT, served, settle, tab

pytestmark = pytest.mark.slow
SCRIPT = """
import time
from pathlib import Path
import streamlit as st
from dashboard.shared.asking import asked

if asked("done", "Work", key="work", title="Much to do", why="It takes long."):
    while not Path("over").exists():
        time.sleep(0.05)
    st.text("worked")
st.text("the rest of the page")
"""


def test_a_button_that_asks_is_gone_when_the_work_begins(browser, tmp_path):
    (tmp_path / "app.py").write_text(SCRIPT)
    with served(tmp_path / "app.py", tmp_path, PYTHONPATH=str(ROOT)) as url, tab(browser, url) as page:
        page.goto(url)
        settle(page)
        button, why = page.get_by_role("button", name="Work"), page.get_by_text("It takes long.")
        expect(why).to_be_visible()
        button.click()
        expect(button).to_have_count(0)  # while the work goes on: nothing here ends it
        expect(why).to_have_count(0)
        expect(page.get_by_role("heading", name="Much to do")).to_have_count(0)
        (tmp_path / "over").touch()
        expect(page.get_by_text("worked")).to_be_visible()
