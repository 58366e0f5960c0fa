"""One picture at a time: what a rerun of Streamlit costs it, and what the mouse over it costs the browser."""

from __future__ import annotations

import functools
from pathlib import Path

from playwright.sync_api import Browser

from benchmarks.browsing import ours
from benchmarks.browsing.all_heads import files
from benchmarks.browsing.chrome import PAINTED, Tab
from benchmarks.browsing.report import middle, row, summed, table, worst
from tests.browsing import ROOT, served, settle

UPDATES = 8
GOALS = {64: "190 kB, 40 ms CPU", 512: "1 MB, 300 ms wall"}


def in_streamlit(chrome: Browser, folder: Path) -> None:
    """Table 2: what a rerun costs."""
    table("The atlas in Streamlit: click to painted, main-thread CPU, bytes over the socket (medians)",
          "what", "tokens", "bytes", "wall", "CPU", "goal")  # fmt: skip
    with served(ROOT / "benchmarks" / "browsing" / "app.py", folder, PYTHONPATH=str(ROOT)) as url:
        for n in (64, 256, 512):
            tab = Tab(chrome)
            tab.page.goto(f"{url}/?n={n}")
            tab.page.wait_for_function(f"() => {PAINTED}", timeout=120_000)
            settle(tab.page)

            def said(text: str) -> str:
                return f"document.querySelector('[data-testid=stText]')?.textContent.includes({text!r})"

            other = tab.page.get_by_role("button", name="Other data")
            again = tab.page.get_by_role("button", name="Again")
            found = [
                tab.update(other.click, f"{said(f'seed {i}')} && watch.drawn > watch.asked") for i in range(1, UPDATES)
            ]
            row("other data", n, *summed(found), GOALS.get(n, ""))
            if n == 64:
                runs = int(tab.page.get_by_test_id("stText").inner_text().split("run ")[1].rstrip("."))
                found = [tab.update(again.click, said(f"run {runs + i}.")) for i in range(1, UPDATES)]
                row("the same again, the whole page", n, *summed(found), "1 kB")
                found = [tab.update(functools.partial(cell, tab, i), said(f"head (0, {i})")) for i in range(1, UPDATES)]
                row("click on a head, to Python and back as text", n, *summed(found), "150 ms wall")
            tab.close()


def cell(tab: Tab, head: int) -> None:
    """Click the tile of a head in layer 0."""
    box = tab.page.get_by_role("application").first.bounding_box()
    assert box is not None
    wide = box["width"] / 12.5
    tab.page.mouse.click(box["x"] + wide * (head + 0.9), box["y"] + 0.6 * wide + 12)


def moving(chrome: Browser, folder: Path) -> None:
    """Table 3: the mouse over the pictures, which Python never hears of."""
    table("Mouse move to the frame that shows it", "picture", "tokens", "p50", "p95", "CPU a move", "goal")
    with files(folder) as url:
        for name, n in (("atlas", 64), ("atlas", 512), ("pattern", 64), ("pattern", 256)):
            page, _ = ours.write(name, getattr(ours, name)(n), folder)
            tab = Tab(chrome)
            tab.load(f"{url}/{page}", PAINTED)
            tab.page.wait_for_timeout(500)
            box = tab.page.locator("canvas").first.bounding_box()
            assert box is not None
            wide, high = box["width"], min(600, box["height"])
            points = [(box["x"] + wide * (0.15 + 0.01 * i), box["y"] + high * (0.3 + 0.01 * i)) for i in range(40)]
            tab.moves(points[:5])
            before = tab.cpu()
            took = tab.moves(points)
            cpu = (tab.cpu() - before) / len(points)
            row(name, n, f"{middle(took):.1f} ms", f"{worst(took):.1f} ms", f"{cpu:.1f} ms", "11 ms")
            tab.close()
