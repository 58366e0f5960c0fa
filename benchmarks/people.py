"""Many people at once: what a page costs the server, and how long anybody waits for an answer meanwhile.

One interpreter serves all, so that the CPU seconds of a page are the bound: P people wait for at least P times that.
1. A person opens each page alone, again and again: the server's CPU seconds a page, over one run and over 1,001.
2. Fifty open the same page at the same time, each with a tab of its own that speaks the dashboard's own protocol, while
   the server is asked for a word (/_stcore/health) every 100 ms: the longest wait for it, and for the last page.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.browsing.report import middle, row, table
from tests.browsing import ROOT, served, server_of
from tests.person import Person

APP = ROOT / "dashboard" / "app.py"
PAGES = ("runs", "heads", "training")
PEOPLE, ALONE = 50, 10
EVERY = 0.1
MANY = 1001


@dataclass
class Cost:
    """Of some pages: CPU seconds of the server, wall seconds, and the waits for a word meanwhile."""

    pages: int
    cpu: float
    wall: float
    waits: list[float]


def made(folder: Path, runs: int) -> Path:
    """The toy of repeated tokens after 30 steps, so many times; all but the first without weights of their own."""
    from tracer.presets import preset
    from tracer.training.loop import train

    toy = preset("induction").config
    record = replace(toy.record, every=1, snapshot_every=10, val_rows=4)
    first = folder / "checkpoints" / "toy-0000"
    train(replace(toy, run=str(first), steps=30, device="cpu", record=record), quiet=True)
    meta = json.loads((first / "run.json").read_text())
    for seed in range(1, runs):
        directory = first.with_name(f"toy-{seed:04}")
        shutil.copytree(first, directory, copy_function=os.link)  # 2 MB each would fill the disk
        (directory / "run.json").unlink()
        said = json.dumps({**meta, "name": directory.name, "seed": seed, "config": {**meta["config"], "seed": seed}})
        (directory / "run.json").write_text(said)
    return folder


@contextmanager
def asking(url: str) -> Iterator[list[float]]:
    """Seconds until each word of the server; what is asked waits for what was asked before."""
    waits, over, host = list[float](), threading.Event(), url.rpartition("/")[2]

    def ask() -> None:
        while not over.wait(EVERY):
            began = time.perf_counter()
            wire = http.client.HTTPConnection(host, timeout=300)
            wire.request("GET", "/_stcore/health")
            wire.getresponse().read()
            wire.close()
            waits.append(time.perf_counter() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        over.set()
        thread.join()


def visits(url: str, page: str, server: psutil.Process, people: int) -> Cost:
    """One page for each of so many people at once, and what that cost."""

    def look(_: int) -> None:
        with Person(url, patience=600) as person:
            raised = person.visit(page, "run=toy-0000")[1]
            assert raised == [], raised

    def spent() -> float:
        times = server.cpu_times()
        return times.user + times.system

    with asking(url) as waits, ThreadPoolExecutor(people) as pool:
        began, before = time.perf_counter(), spent()
        list(pool.map(look, range(people)))
        return Cost(people, spent() - before, time.perf_counter() - began, waits)


def measure(folder: Path, runs: int) -> None:
    with served(APP, folder) as url:
        server = server_of(url)
        for page in PAGES:
            for _ in range(2):
                visits(url, page, server, 1)
            alone = [visits(url, page, server, 1) for _ in range(ALONE)]
            row(f"{page}, {runs:,} runs, one person", f"{1000 * middle([one.cpu for one in alone]):.0f} ms CPU",
                f"{1000 * middle([one.wall for one in alone]):.0f} ms", "100 ms CPU")  # fmt: skip
            together = visits(url, page, server, PEOPLE)
            row(f"{page}, {runs:,} runs, {PEOPLE} people", f"{1000 * together.cpu / PEOPLE:.0f} ms CPU a page",
                f"all after {together.wall:.1f} s, longest wait for a word {max(together.waits):.2f} s, "
                f"middle {middle(together.waits):.2f} s", "1 s for a word")  # fmt: skip
            sys.stdout.flush()


def main() -> None:
    os.environ["STREAMLIT_BROWSER_GATHER_USAGE_STATS"] = "false"
    print(f"\nConditions: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; the people run on the same machine.")
    table("The dashboard and many people", "what", "measured", "besides", "goal")
    for runs in (1, MANY):
        with tempfile.TemporaryDirectory() as name:
            measure(made(Path(name), runs), runs)


if __name__ == "__main__":
    main()
