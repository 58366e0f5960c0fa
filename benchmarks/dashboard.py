"""The pages in Chromium beside BertViz and CircuitsVis on the same tensors: bytes, wall time, main-thread CPU, memory.

1. All heads of a 12 x 12 model as a page of its own: ours, BertViz, CircuitsVis.
2. The same in Streamlit: other data, the same again, another head; then mouse moves over the pictures.
3. The dashboard itself over a small run with 100 snapshots: first content, a step of the film, a click, memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

from benchmarks.browsing import all_heads, parts, peers, whole
from benchmarks.browsing.chrome import browser


def conditions() -> str:
    packages = " ".join(f"{name} {version(name)}," for name in ("streamlit", "playwright"))
    theirs = " and ".join(package.replace("==", " ") for package in peers.PACKAGES)
    return (
        f"Conditions: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {packages} headless Chromium, no GPU; "
        f"{theirs}, their CDN files served from this machine. Attention is synthetic; ours is 8-bit, theirs decimals. "
        "CPU is that of the page's main thread."
    )


def main() -> None:
    os.environ["STREAMLIT_BROWSER_GATHER_USAGE_STATS"] = "false"
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        print("dashboard: not measured, there is no Chromium: scripts/install-chromium")
        return
    print(f"\n{conditions()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        all_heads.measure(executable, folder)
        with browser(executable) as chrome:
            parts.in_streamlit(chrome, folder)
            parts.moving(chrome, folder)
            whole.small_run(folder)
            whole.pages(chrome, folder)
