"""A browser of another account of this machine: it is asked for the token, and gets in with it."""

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests import children
from tests.browsing import ARTEFACTS, FINDINGS, FLAGS, GRAVE, PATIENCE, READY, ROOT, SCHEMES, SIZES, served, settle
from tests.strangers import NOBODY, why_not
from tests.waiting import wait

pytestmark = pytest.mark.slow
WIDER = "() => document.documentElement.scrollWidth > innerWidth"


@contextmanager
def theirs(browser, executable):
    """A tab of a Chromium that runs as another account."""
    if why := why_not():
        pytest.skip(why)
    home = Path(tempfile.mkdtemp(prefix="manyeyes-theirs-"))  # pytest's own folders can be entered by one account only
    os.chown(home, NOBODY, NOBODY)
    told = home / "DevToolsActivePort"
    process = children.start(
        [executable, "--headless", *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={home}", "about:blank"],
        user=NOBODY, group=NOBODY, extra_groups=[], env={"HOME": str(home), "PATH": os.environ["PATH"]}, cwd=home,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait(lambda: told.exists() and "\n" in told.read_text())
        other = browser.browser_type.connect_over_cdp(f"http://127.0.0.1:{told.read_text().split()[0]}")
        yield other.contexts[0].new_page()
        other.close()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(home, ignore_errors=True)  # its helpers end a moment later


def test_a_browser_of_another_account_is_asked_and_gets_in(browser, chromium, short_toy, tmp_path):
    shutil.copytree(short_toy, tmp_path / "checkpoints" / "tiny")
    with served(ROOT / "dashboard" / "app.py", tmp_path) as server, theirs(browser, chromium) as page:
        page.set_default_timeout(PATIENCE)
        page.goto(f"{server}/heads?run=tiny&token=3")
        expect(page.get_by_role("heading")).to_have_text("manyeyes asks for a token")
        expect(page.get_by_label("Token")).to_be_focused()
        ARTEFACTS.mkdir(exist_ok=True)
        for width, height in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            for scheme in SCHEMES[width]:
                page.emulate_media(color_scheme=scheme)
                page.evaluate(Axe().axe_script)
                assert page.evaluate(FINDINGS, [GRAVE, "html"]) == [] and not page.evaluate(WIDER)
                page.screenshot(path=ARTEFACTS / f"door-{width}-{scheme}.png")
        path = re.fullmatch(r"cat (\S+)", page.locator("code").inner_text())
        assert path is not None
        token = Path(path[1]).read_text().strip()
        page.get_by_label("Token").fill("nonsense")
        page.get_by_role("button").click()
        expect(page.get_by_role("alert")).to_have_text("That was not the token.")
        page.set_viewport_size({"width": 1440, "height": 900})
        page.get_by_label("Token").fill(token)
        page.get_by_role("button").click()
        page.wait_for_selector(READY)
        settle(page)
        assert "run=tiny" in page.url and "token=3" in page.url and token not in page.url
        page.get_by_role("button", name="Share").click()
        shared = page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").first
        expect(shared).to_contain_text("token=3")
        assert token not in page.content()
        page.goto(f"{server}/training?run=tiny&token={token}")  # from the terminal, a second time
        page.wait_for_selector(READY)
        assert token not in page.url
