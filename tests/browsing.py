"""The dashboard as browser tests use it: serve it, open a watched tab, wait until it stands still, keep a picture."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Route

ROOT = Path(__file__).resolve().parents[1]
ARTEFACTS = ROOT / "artefacts"
"""Pictures of every page, kept after a browser run."""
SIZES = {1440: 900, 390: 844}
SCHEMES = ("light", "dark")
PROBES = re.compile(r"/[a-z]+/_stcore/(health|host-config)$")
"""Streamlit's client looks for its server below the page's own address first; the 404 is logged as an error."""
READY = '[data-testid="stApp"][data-test-script-state="notRunning"]'
STILL = """([quiet, longest]) => new Promise((done) => {
  let timer;
  const finish = () => { observer.disconnect(); clearTimeout(timer); clearTimeout(limit); done(); };
  const wait = () => { clearTimeout(timer); timer = setTimeout(finish, quiet); };
  const observer = new MutationObserver(wait), limit = setTimeout(finish, longest);
  observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
  wait();
})"""


GRAVE = ["serious", "critical"]
FINDINGS = """async (impacts) => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  const say = (rule, node) => [rule.id, node.target.flat().join(" "), node.html.slice(0, 160), node.failureSummary];
  return violations.filter((rule) => impacts.includes(rule.impact))
    .flatMap((rule) => rule.nodes.map((node) => say(rule, node).join("\\n  ")));
}"""
OVERFLOWING = """() => {
  const views = document.querySelectorAll('[data-testid=stMain], [data-testid=stApp]');
  const wide = [document.documentElement, document.body, ...views];
  const scrolled = (node) => { // inside an area that scrolls or cuts by itself, as code and tables do
    for (let up = node.parentElement; up && !wide.includes(up); up = up.parentElement)
      if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(up).overflowX)) return true;
    return false;
  };
  if (wide.every((node) => node.scrollWidth <= node.clientWidth)) return [];
  return [...document.querySelectorAll('[data-testid=stMain] *')]
    .filter((node) => node.getBoundingClientRect().right > innerWidth + 1 && !scrolled(node))
    .map((node) => `${node.tagName}.${node.className} ${(node.textContent ?? '').slice(0, 60)}`);
}"""


def settle(page: Page) -> None:
    """Until the script has run and the page has stood still for a while: scripts of parts are loaded late."""
    page.wait_for_timeout(300)
    page.wait_for_selector(READY)
    page.evaluate(STILL, [400, 8000])
    page.wait_for_selector(READY)


@contextmanager
def tab(browser: Browser, server: str, **options: Any) -> Iterator[Page]:
    """A tab that may talk to `server` and to nobody else; by its end no script may have failed or asked."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
    page = context.new_page()
    page.set_default_timeout(30_000)
    problems: list[str] = []

    def only_here(route: Route) -> None:
        if route.request.url.startswith((f"{server}/", "data:", "blob:")):
            return route.continue_()
        problems.append(f"request: {route.request.url}")
        return route.abort()

    def logged(message: ConsoleMessage) -> None:
        if message.type == "error" and not PROBES.search(message.location["url"]):
            problems.append(f"console: {message.text} {message.location['url']}")

    def asked(dialog: Dialog) -> None:
        problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.route("**/*", only_here)
    page.on("console", logged)
    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.on("dialog", asked)
    try:
        yield page
    finally:
        context.close()
    assert problems == []


def photograph(page: Page, name: str) -> None:
    """The whole page into artefacts/NAME.png; Streamlit scrolls inside, so the window grows to hold it all."""
    size = page.viewport_size
    assert size is not None
    high = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": size["width"], "height": max(size["height"], min(high, 6000))})
    page.evaluate(STILL, [400, 8000])
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}.png")
    page.set_viewport_size(size)


def sideways(page: Page) -> list[str]:
    """What sticks out of the window to the right, where the page or a column of it would scroll sideways."""
    return page.evaluate(OVERFLOWING)


def findings(page: Page) -> list[str]:
    """What axe-core calls serious or critical, shadow roots included."""
    page.evaluate(Axe().axe_script)
    return page.evaluate(FINDINGS, GRAVE)


def visit(page: Page, address: str) -> None:
    page.goto(address)
    settle(page)
    assert page.get_by_test_id("stException").all_inner_texts() == []


def query(page: Page) -> dict[str, list[str]]:
    """What the address carries."""
    return parse_qs(urlparse(page.url).query)


def number(text: str) -> float:
    return float(re.sub(r"[^\d.+-]", "", text.replace("−", "-")))


def metrics(page: Page, *labels: str) -> dict[str, float]:
    """The first of each labelled number on the page, once those of `labels` are there."""
    for label in labels:
        page.get_by_test_id("stMetric").filter(has_text=label).first.wait_for()
    found: dict[str, float] = {}
    for box in page.get_by_test_id("stMetric").all():
        label = box.get_by_test_id("stMetricLabel").inner_text()
        found.setdefault(label, number(box.get_by_test_id("stMetricValue").inner_text()))
    return found


@contextmanager
def served(app: Path, folder: Path, **environment: str) -> Iterator[str]:
    """The address of `streamlit run app` in `folder`, once it answers; what it prints goes to server.txt."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(app), "--server.headless", "true", "--server.port",
               str(port), "--server.fileWatcherType", "none"]  # fmt: skip
    with (folder / "server.txt").open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
    url = f"http://127.0.0.1:{port}"
    for _ in range(1200):
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health"):
                break
        except OSError:
            time.sleep(0.05)
    yield url
    process.terminate()
    process.wait()
