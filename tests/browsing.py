"""The dashboard as browser tests use it: serve it, wait until it stands still, read its numbers."""

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
from urllib.parse import parse_qs, urlparse

from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]
READY = '[data-testid="stApp"][data-test-script-state="notRunning"]'
STILL = """([quiet, longest]) => new Promise((done) => {
  let timer;
  const finish = () => { observer.disconnect(); clearTimeout(timer); clearTimeout(limit); done(); };
  const wait = () => { clearTimeout(timer); timer = setTimeout(finish, quiet); };
  const observer = new MutationObserver(wait), limit = setTimeout(finish, longest);
  observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
  wait();
})"""


def settle(page: Page) -> None:
    """Until the script has run and the page has stood still for a while: scripts of parts are loaded late."""
    page.wait_for_timeout(300)
    page.wait_for_selector(READY)
    page.evaluate(STILL, [400, 8000])
    page.wait_for_selector(READY)


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
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health"):
                break
        except OSError:
            time.sleep(0.2)
    yield url
    process.terminate()
    process.wait()
