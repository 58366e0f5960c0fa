"""Chromium with a stopwatch: wall time up to a painted frame, main-thread CPU, bytes over the socket.

CPU is `TaskDuration` of the DevTools protocol in the domain threadTicks: seconds that the main thread of the page ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, Route, sync_playwright

from benchmarks.browsing import peers

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WATCH = """
(() => {
  const after = (done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now());
    channel.port2.postMessage(0);
  });
  const w = (globalThis.watch = { drawn: 0, clicked: 0, moves: [], after });
  w.until = (ready, most = 30) => new Promise((done, fail) => {
    const late = setTimeout(() => fail(new Error(`not within ${most} s: ${ready}`)), 1000 * most);
    const look = () => (ready() ? (clearTimeout(late), after(done)) : requestAnimationFrame(look));
    look();
  });
  const draw = CanvasRenderingContext2D.prototype.drawImage;
  CanvasRenderingContext2D.prototype.drawImage = function (...all) {
    w.drawn = performance.now();
    return draw.apply(this, all);
  };
  for (const kind of ["click", "keydown"]) addEventListener(kind, (event) => { w.clicked = event.timeStamp; }, true);
  addEventListener("pointermove", (event) => after((now) => w.moves.push(now - event.timeStamp)), true);
})();
"""
PAINTED = "watch.drawn > 0"


@contextmanager
def browser(executable: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield opened
        opened.close()


class Tab:
    """One page in a context of its own, which reaches this machine and the local copies of CDN files only."""

    def __init__(self, browser: Browser, timeout: float = 60.0) -> None:
        self.timeout = timeout
        self.context = browser.new_context(viewport={"width": 1440, "height": 900})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(timeout * 1000)
        self.page.add_init_script(WATCH)
        self.blocked: list[str] = []
        self.received = 0
        self.page.route("**/*", self._route)
        self.page.on("websocket", lambda socket: socket.on("framereceived", self._count))
        self.protocol = self.context.new_cdp_session(self.page)
        self.protocol.send("Performance.enable", {"timeDomain": "threadTicks"})

    def _route(self, route: Route) -> None:
        url = route.request.url
        if url.startswith(("http://127.0.0.1", "data:", "blob:")):
            return route.continue_()
        if path := peers.script(url):
            return route.fulfill(path=path, content_type="text/javascript")
        self.blocked.append(url)
        return route.abort()

    def _count(self, frame: Any) -> None:
        self.received += len(frame)

    def cpu(self) -> float:
        """Milliseconds so far."""
        found = self.protocol.send("Performance.getMetrics")["metrics"]
        return 1000 * next(m["value"] for m in found if m["name"] == "TaskDuration")

    def load(self, url: str, ready: str) -> tuple[float, float]:
        """(wall, CPU) ms from the start of loading to the frame after `ready` holds."""
        self.page.goto(url.rpartition("/")[0] + "/blank.html")  # the same process as the page to come
        before = self.cpu()
        self.page.add_init_script(f"watch.finished = watch.until(() => {ready}, {self.timeout});")
        self.page.goto(url, wait_until="commit")
        wall = self.page.evaluate("() => watch.finished")
        return wall, self.cpu() - before

    def update(self, act: Callable[[], object], ready: str) -> tuple[float, float, int]:
        """(wall ms from the click or key to the frame after `ready` holds, CPU ms, bytes received meanwhile)."""
        bytes_before, cpu_before = self.received, self.cpu()
        self.page.evaluate(f"() => {{ watch.asked = performance.now(); watch.done = watch.until(() => {ready}); }}")
        act()
        wall = self.page.evaluate("async () => (await watch.done) - watch.clicked")
        cpu = self.cpu() - cpu_before
        self.page.wait_for_timeout(300)  # what still comes belongs to it
        return wall, cpu, self.received - bytes_before

    def moves(self, points: list[tuple[float, float]]) -> list[float]:
        """Milliseconds from each mouse move to the frame that shows it."""
        self.page.evaluate("() => { watch.moves = []; }")
        for x, y in points:
            self.page.mouse.move(x, y)
            self.page.wait_for_timeout(40)
        return self.page.evaluate("() => watch.moves")

    def close(self) -> None:
        self.context.close()
