"""The dashboard itself over a small run with 100 snapshots: first content, a step of the film, a click, memory."""

from __future__ import annotations

import functools
import re
import time
from dataclasses import replace
from pathlib import Path

import psutil
from playwright.sync_api import Browser

from benchmarks.browsing.chrome import Tab
from benchmarks.browsing.report import middle, ms, row, size, summed, table, worst
from tests.browsing import READY, ROOT, served, server_of, settle

INTERACTIONS, SESSIONS = 500, 20


def small_run(folder: Path) -> None:
    """The toy of repeated tokens, 99 updates, each kept: 100 snapshots."""
    from tracer.presets import preset
    from tracer.training.loop import train

    toy = preset("induction").config
    record = replace(toy.record, every=1, snapshot_every=1, log_every=50, val_rows=8)
    train(replace(toy, run=str(folder / "checkpoints" / "toy"), steps=99, device="cpu", record=record), quiet=True)


def first_content(chrome: Browser, folder: Path) -> None:
    """Command to content, and what was imported and fetched on the way."""
    took, fetched, torch = [], [], False
    for _ in range(3):
        tab = Tab(chrome)
        tab.page.on("request", lambda request: fetched.append(request.url))
        began = time.perf_counter()
        with served(ROOT / "dashboard" / "app.py", folder) as url:
            tab.page.goto(url, wait_until="commit")
            tab.page.get_by_text("Which runs are there").wait_for()
            took.append(1000 * (time.perf_counter() - began))
            settle(tab.page)
            torch = torch or "libtorch" in Path(f"/proc/{server_of(url).pid}/maps").read_text()
        tab.close()
    heavy = [name for name, there in (("torch", torch), ("Plotly", any("lotly" in u for u in fetched))) if there]
    said = f"{' and '.join(heavy) or 'neither torch nor Plotly'} loaded"
    row("command to first content (Runs)", ms(middle(took)), said, "2 s, neither loaded")


def megabytes(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6


def pages(chrome: Browser, folder: Path) -> None:
    """Table 4: the dashboard over a small run."""
    table("The dashboard over a run of 2 x 4 heads with 100 snapshots", "what", "measured", "besides", "goal")
    first_content(chrome, folder)
    with served(ROOT / "dashboard" / "app.py", folder) as url:
        tab, server = Tab(chrome), server_of(url)
        tab.page.goto(f"{url}/heads?run=toy&layer=0&head=0")
        film(tab)
        clicks(tab)
        memory(chrome, tab, server, url)
        tab.close()


def film(tab: Tab) -> None:
    """Steps of the scrubber under the mouse."""
    settle(tab.page)
    slider = tab.page.get_by_role("slider", name="Step of training")
    slider.wait_for(timeout=120_000)
    tab.page.wait_for_timeout(3000)
    box = slider.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    points = [(box["x"] + box["width"] * (0.2 + 0.01 * i), y) for i in range(60)]
    tab.page.mouse.move(*points[0])
    tab.page.mouse.down()
    tab.moves(points[:5])
    before = tab.cpu()
    took = tab.moves(points)
    cpu = (tab.cpu() - before) / len(points)
    tab.page.mouse.up()
    settle(tab.page)
    row(
        "a step of the film, drag to painted",
        f"{middle(took):.1f} ms",
        f"p95 {worst(took):.1f} ms, CPU {cpu:.1f} ms",
        "16 ms",
    )


def choose(tab: Tab, layer: int, head: int) -> None:
    """Click the tile of a head among 2 x 4."""
    atlas = tab.page.get_by_role("application", name=re.compile("attention heads")).first
    box = atlas.bounding_box()
    assert box is not None
    atlas.click(position={"x": box["width"] * (head + 0.5) / 4, "y": box["height"] * (layer + 0.5) / 2})


def titled(layer: int, head: int) -> str:
    return (f"[...document.querySelectorAll('h2')].some((title) => title.textContent.startsWith('L{layer}H{head} on '))"
            " && watch.drawn > watch.clicked")  # fmt: skip


def clicks(tab: Tab) -> None:
    """Another head on the Heads page: the click, Python, the new pattern on the screen; then nothing new at all."""
    found = []
    for i in range(13):
        layer, head = divmod((i * 3 + 1) % 8, 4)
        found.append(tab.update(functools.partial(choose, tab, layer, head), titled(layer, head)))
        settle(tab.page)
    received, wall, cpu = summed(found[5:])
    row("click on a head to its pattern (Heads)", wall, f"{received}, CPU {cpu}", "150 ms and compute")
    before = tab.received
    tab.page.keyboard.press("r")
    settle(tab.page)
    row("a rerun of Heads with nothing new", size(tab.received - before), "all elements of the page", "1 kB a picture")


def memory(chrome: Browser, tab: Tab, server: psutil.Process, url: str) -> None:
    """Resident memory of the server over clicks and over sessions."""

    def visit(clicks: int) -> float:
        for i in range(clicks):
            choose(tab, *divmod(i * 3 % 8, 4))
            tab.page.wait_for_timeout(60)
            tab.page.wait_for_selector(READY)
        settle(tab.page)
        return megabytes(server)

    warm, after = visit(INTERACTIONS // 8), visit(INTERACTIONS)
    row(f"server memory over {INTERACTIONS} clicks", f"{after - warm:+.0f} MB", f"{warm:.0f} MB when warm", "flat")
    grown = []
    for _ in range(SESSIONS):
        other = Tab(chrome)
        other.page.goto(f"{url}/heads?run=toy")
        settle(other.page)
        other.close()
        grown.append(megabytes(server))
    row(f"server memory over {SESSIONS} sessions", f"{grown[-1] - after:+.0f} MB",
        f"of which the last {SESSIONS // 2}: {grown[-1] - grown[SESSIONS // 2 - 1]:+.0f} MB", "flat")  # fmt: skip
