"""144 heads as a page of its own, served from this machine: ours, BertViz, CircuitsVis."""

from __future__ import annotations

import functools
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Error

from benchmarks.browsing import ours, peers
from benchmarks.browsing.chrome import PAINTED, Tab, browser
from benchmarks.browsing.report import middle, ms, row, size, table

SIZES = (32, 64, 128)
OURS_ONLY = (256, 512)
REPEATS = 5
LIMIT = 60.0
"""Seconds that a page may take until it is painted."""


class Quiet(SimpleHTTPRequestHandler):
    """Static files without a line for each."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def files(folder: Path) -> Iterator[str]:
    """The address of a folder."""
    (folder / "blank.html").write_text("<!DOCTYPE html><title>blank</title>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def loads(executable: str, url: str, ready: str, repeats: int) -> tuple[float, float]:
    """Medians of (wall, CPU) ms over fresh tabs of one browser."""
    found = []
    with browser(executable) as chrome:
        for _ in range(repeats):
            tab = Tab(chrome, LIMIT)
            found.append(tab.load(url, ready))
            assert not tab.blocked, tab.blocked
            tab.close()
    return middle([wall for wall, _ in found]), middle([cpu for _, cpu in found])


def measure(executable: str, folder: Path) -> None:
    """Bytes, wall time and CPU of each, and how many times ours the others are."""
    table("All heads of a 12 x 12 model as a page: bytes, start of loading to painted, main-thread CPU",
          "view", "tokens", "bytes", "wall", "CPU", "bytes / ours", "CPU / ours")  # fmt: skip
    with files(folder) as url:
        base: dict[int, tuple[int, float]] = {}
        wall, cpu = loads(executable, f"{url}/blank.html", "true", REPEATS)
        row("an empty page, which the others include", "", "", ms(wall), ms(cpu), "", "")
        for n in (*SIZES, *OURS_ONLY):
            blob = ours.atlas(n)
            page, total = ours.write("atlas", blob, folder)
            wall, cpu = loads(executable, f"{url}/{page}", PAINTED, REPEATS)
            base[n] = total, cpu
            row("manyeyes", n, f"{size(total)}, of which {size(len(blob))} data", ms(wall), ms(cpu), "", "")
        try:
            peers.install()
        except subprocess.CalledProcessError as problem:
            return row("BertViz, CircuitsVis", "", f"not measured: {problem}", "", "", "", "")
        for peer, ready in peers.PEERS.items():
            for n in SIZES:
                path = folder / "peer.html"
                peers.write(peer, n, path)
                total = path.stat().st_size
                try:
                    wall, cpu = loads(executable, f"{url}/peer.html", ready, 1 if total > 8e6 else 3)
                except Error as problem:
                    late = "not within" in str(problem)
                    reason = f"no paint in {LIMIT:.0f} s" if late else str(problem).split("\n")[0]
                    row(peer, n, size(total), reason, "", f"{total / base[n][0]:.0f}", "")
                    break
                row(peer, n, size(total), ms(wall), ms(cpu), f"{total / base[n][0]:.0f}", f"{cpu / base[n][1]:.0f}")
    return None
