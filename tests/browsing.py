"""The dashboard as browser tests use it: serve it, open a watched tab, wait until it stands still, keep a picture."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlparse
from weakref import WeakKeyDictionary

import psutil
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Playwright,
    Request,
    ViewportSize,
    expect,
)

from tests.waiting import wait

ROOT = Path(__file__).resolve().parents[1]
ARTEFACTS = ROOT / "artefacts"
"""Pictures of every page, kept after a browser run."""
SIZES = {1440: 900, 390: 844}
WINDOW: ViewportSize = {"width": 1440, "height": SIZES[1440]}
SCHEMES: dict[int, tuple[Literal["light", "dark"], ...]] = {1440: ("light", "dark"), 390: ("dark", "light")}
"""By the width of the window, the scheme that a page is loaded in and the one that it is switched to."""
PROBES = re.compile(r"/[a-z]+/_stcore/(health|host-config)$")
"""Streamlit's client looks for its server below the page's own address first; the 404 is logged as an error."""
READY = '[data-testid="stApp"][data-test-script-state="notRunning"]'
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    # The host's scripts are compiled once for all tabs, and not once more for the lines of each warning they log.
    "--process-per-site", "--js-flags=--no-enable-lazy-source-positions",
    # Given twice, the last list counts: the first line is what Playwright also takes away, where it concerns a page.
    "--disable-features=HttpsUpgrades,MediaRouter,OptimizationHints,PaintHolding,AimEnabled,"
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess",
]  # fmt: skip
"""No other machine can be reached, and no processes run beside those of the page: they took a quarter of all work."""
NO_HOST_MOTION = """(() => { // the host's spinners are drawn 60 times a second, by this machine's own cores
  const calm = new CSSStyleSheet();
  calm.replaceSync("*, ::before, ::after { animation: none !important; transition: none !important }");
  document.adoptedStyleSheets.push(calm);
})()"""
"""They took a fifth of what the browser does. What a picture of ours moves lies below a shadow root, and still does."""
WIRE = """(() => { // when this page last asked its server, and last heard from it; in `held`, if a list, questions wait
  const wire = (window.wire = { asked: 0, heard: 0, held: null }), { send } = WebSocket.prototype;
  WebSocket.prototype.send = function (data) {
    if (wire.held) return void wire.held.push(() => this.send(data));
    wire.asked = performance.now();
    this.onheard ??= (this.addEventListener("message", () => { wire.heard = performance.now(); }), true);
    return send.call(this, data);
  };
})()"""
RELEASE = "() => { const { held } = wire; wire.held = null; for (const ask of held) ask(); }"
STILL = """([quiet, longest]) => new Promise((done) => {
  const beat = 20; // ms, in which a busy script counts as once: what it holds up (a table's words) comes after it
  let still = 0, before = performance.now(), restless = 0;
  const chart = '[class*="_chart "]:not(:has(.main-svg))'; // whose scripts the host fetches late
  const table = '[data-testid=data-grid-canvas]:not(:has([role=grid]))'; // said in words after it is painted
  const undrawn = ['[class*="st-key-me-"]:not(:has([data-drawn]))', '[data-testid=stSkeleton]', chart, table].join();
  const asking = () => document.querySelector("[data-testid=stApp]")?.dataset.testScriptState !== "notRunning"
    || window.wire?.asked > window.wire?.heard;
  const drawing = () => // asks for the layout, so not at every beat
    [...document.querySelectorAll(undrawn)].some((node) => node.checkVisibility() && node.clientWidth);
  const observer = new MutationObserver(() => { still = 0; });
  observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  const timer = setInterval(() => {
    const now = performance.now();
    if (asking()) still = 0; else { still += 1; restless += now - before; }
    before = now;
    if (still * beat < quiet && restless < longest) return;
    if (drawing()) { still = 0; return; }
    observer.disconnect(); clearInterval(timer); done(true);
  }, beat);
})"""
"""Nothing asked of the server is unanswered, no script runs, every picture in sight is drawn, and nothing has changed
for `quiet` ms, in which also the slowest of a part's own delays (0.2 s) would have passed."""


MOVED = """
window.moved = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) moved += one.value;
}).observe({ type: "layout-shift", buffered: true });
"""
"""Adds up in `moved` how far things move while a page loads."""
GRAVE = ["serious", "critical"]
FINDINGS = """async ([impacts, within]) => {
  const lesser = axe._audit.rules.filter((rule) => rule.impact && !impacts.includes(rule.impact)); // whatever they find
  const rules = Object.fromEntries(lesser.map((rule) => [rule.id, { enabled: false }]));
  const { violations } = await axe.run(within, { resultTypes: ["violations"], rules });
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


PROFILES: WeakKeyDictionary[Browser, dict[str, BrowserContext]] = WeakKeyDictionary()
PATIENCE = 120_000
"""ms after which something hangs; a busy machine is no reason to fail."""
expect.set_options(timeout=PATIENCE)


@contextmanager
def chromium_of(playwright: Playwright, executable: str) -> Iterator[Browser]:
    """A browser without a network."""
    browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
    yield browser
    browser.close()


def server_of(url: str) -> psutil.Process:
    """The process that listens there."""
    port = int(url.rpartition(":")[2])
    listening = lambda child: any(  # noqa: E731
        c.laddr.port == port and c.status == psutil.CONN_LISTEN for c in child.net_connections("inet")
    )
    return next(filter(listening, psutil.Process().children(recursive=True)))


def settle(page: Page) -> None:
    """Until the page stands still; one that never does, because its run trains, is given 8 s between scripts."""
    page.wait_for_function(STILL, arg=[300, 8000], timeout=PATIENCE)


def profile_of(browser: Browser, server: str, options: dict[str, Any]) -> BrowserContext:
    """The browser's one profile with these options: the host's 4 MB of scripts are read and compiled once for it.

    Its first page stays: without one, the process would end with each tab, and what it had compiled.
    """
    name = json.dumps(options, sort_keys=True)
    profiles = PROFILES.setdefault(browser, {})
    if name not in profiles:
        profiles[name] = browser.new_context(viewport=WINDOW, **options)
        profiles[name].add_init_script(WIRE)
        profiles[name].add_init_script(NO_HOST_MOTION)
        profiles[name].new_page().goto(f"{server}/_stcore/health")
    return profiles[name]


@contextmanager
def tab(browser: Browser, server: str, **options: Any) -> Iterator[Page]:
    """A tab that talks to `server` and to nobody else; by its end no script may have failed or asked.

    It finds what scripts and pages the tabs before it have fetched, and nothing that they stored.
    """
    viewport = options.pop("viewport", WINDOW)
    media = {name: options.pop(name) for name in ("color_scheme", "reduced_motion") if name in options}
    context = profile_of(browser, server, options)
    page = context.new_page()
    page.set_viewport_size(viewport)
    page.emulate_media(**media)
    page.set_default_timeout(PATIENCE)
    problems: list[str] = []

    def only_here(request: Request) -> None:
        if not request.url.startswith((f"{server}/", "data:", "blob:")):
            problems.append(f"request: {request.url}")

    def logged(message: ConsoleMessage) -> None:
        if message.type == "error" and not PROBES.search(message.location["url"]):
            problems.append(f"console: {message.text} {message.location['url']}")

    def asked(dialog: Dialog) -> None:
        problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("request", only_here)
    page.on("console", logged)
    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.on("dialog", asked)
    try:
        yield page
    finally:
        if page.url.startswith(server):
            page.evaluate("localStorage.clear(), sessionStorage.clear()")
        for one in context.pages[1:]:
            one.close()
        context.clear_cookies()
    assert problems == [], "\n".join(problems)


def photograph(page: Page, name: str) -> None:
    """The whole page into artefacts/NAME.png; Streamlit scrolls inside, so the window grows to hold it all."""
    size = page.viewport_size
    assert size is not None
    high = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": size["width"], "height": max(size["height"], min(high, 6000))})
    settle(page)
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}.png")
    page.set_viewport_size(size)


def in_both_schemes(page: Page, width: int) -> Iterator[str]:
    """Each scheme, once the page wears it."""
    for scheme in SCHEMES[width]:
        page.emulate_media(color_scheme=scheme)
        settle(page)
        yield scheme


def sideways(page: Page) -> list[str]:
    """What sticks out of the window to the right, where the page or a column of it would scroll sideways."""
    return page.evaluate(OVERFLOWING)


def findings(page: Page, within: str = "html") -> list[str]:
    """What axe-core calls serious or critical, shadow roots included.

    Meanwhile nothing is asked of the server: what a live run draws anew fades first, and so has little contrast.
    """
    page.evaluate("wire.held = []")
    settle(page)
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    found = page.evaluate(FINDINGS, [GRAVE, within])
    page.evaluate(RELEASE)
    return found


def visit(page: Page, address: str) -> None:
    page.goto(address)
    settle(page)
    assert page.get_by_test_id("stException").all_inner_texts() == []


def spot(page: Page, key: str, x: float, y: float, lane: int = 0) -> tuple[float, float]:
    """A place of a Plotly chart in the window, in shares of its width and height."""
    area = page.locator(f".st-key-{key} .nsewdrag").nth(lane)
    for _ in range(3):  # a picture that is drawn late, far away, moves what is in view
        area.evaluate("node => node.scrollIntoView({ block: 'center' })")
        settle(page)
        box = area.bounding_box()
        assert box is not None
        place = box["x"] + x * box["width"], box["y"] + y * box["height"]
        if 0 <= place[1] < page.evaluate("innerHeight"):
            break
    return place


def tip(page: Page, key: str) -> Locator:
    """What a Plotly chart says of the point under the mouse."""
    return page.locator(f".st-key-{key} .hoverlayer .hovertext")


def query(page: Page) -> dict[str, list[str]]:
    """What the address carries."""
    return parse_qs(urlparse(page.url).query)


def number(text: str) -> float:
    return float(re.sub(r"[^\d.+-]", "", text.replace("−", "-")))


def losses(page: Page) -> list[float]:
    """In the answer of Ablate: before, and after where heads are off."""
    said = page.locator(".st-key-answer").get_by_text("the loss on").inner_text()
    return [number(one) for one in re.findall(r"(?:from|to|is) (\d+\.\d+)", said)]


@contextmanager
def served(app: Path, folder: Path, *options: str, **environment: str) -> Iterator[str]:
    """The address of `streamlit run app` in `folder`, once it answers; what it prints goes to server.txt."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(app), "--server.headless", "true", "--server.port",
               str(port), "--server.fileWatcherType", "none", *options]  # fmt: skip
    with (folder / "server.txt").open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, (folder / "server.txt").read_text()
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health"):
                return True
        except OSError:
            return False

    try:
        wait(answers)
        yield url
    finally:
        process.terminate()
        process.wait()
