"""Scrubbing through 100 snapshots: what a step costs the browser, what a film costs to make, and its bytes.

Frames are synthetic attention of 4 x 4 heads on 64 tokens. A step is from the mouse's move to the frame that shows it,
in the atlas and in the pattern; CPU is the main thread's.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.browsing.chrome import Tab, browser
from benchmarks.browsing.report import middle, worst
from tests.browsing import ROOT, served, settle
from tracer.pictures import payload, scrubber

SNAPSHOTS, MOVES = 100, 150
PAGE = Path(__file__).parent / "browsing" / "film_app.py"


def packed() -> tuple[bytes, np.ndarray]:
    """The film of 100 snapshots, and the shares it was made of."""
    from benchmarks.browsing.tensors import attention

    shares = np.stack([attention(64, seed)[:4, :4] for seed in range(SNAPSHOTS)])
    scores = {name: np.random.default_rng(0).random((SNAPSHOTS, 4, 4)) for name in ("induction", "previous_token")}
    frames = {step: scrubber.codes(shares[step]) for step in range(SNAPSHOTS)}
    steps, loss = list(range(SNAPSHOTS)), np.linspace(7, 3, SNAPSHOTS)
    return scrubber.pack(steps, frames, loss, scores, n=(64, 64), causal=[True] * 4, loss_label="held-out loss"), shares


def main() -> None:
    print(f"\nscrubbing, 4 x 4 heads, 64 tokens, {SNAPSHOTS} snapshots")
    blob, _ = packed()
    header, arrays = payload.unpack(blob)
    frames = dict(enumerate(arrays["frames"]))
    began = time.perf_counter()
    scrubber.pack(range(SNAPSHOTS), frames, np.zeros(SNAPSHOTS), {}, n=(64, 64), causal=header["causal"])
    took = time.perf_counter() - began
    raw = arrays["frames"].nbytes
    print(f"{raw / 1e6:.2f} MB of frames are {len(blob) / 1e6:.2f} MB deflated, packed in {took:.2f} s")
    browse()
    film_demo()


def browse() -> None:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        print("the browser's part was not measured, there is no Chromium: scripts/install-chromium")
        return
    with (
        tempfile.TemporaryDirectory() as folder, browser(executable) as chrome,
        served(PAGE, Path(folder), PYTHONPATH=str(ROOT)) as url,
    ):  # fmt: skip
        tab = Tab(chrome)
        tab.page.goto(url)
        strip = tab.page.get_by_role("slider", name="Step of training")
        strip.wait_for()
        settle(tab.page)
        box = strip.bounding_box()
        assert box is not None
        places = np.random.default_rng(1).random(MOVES)
        points = [(box["x"] + 9 + p * (box["width"] - 18), box["y"] + 30) for p in places]
        tab.page.mouse.move(*points[0])
        tab.page.mouse.down()
        tab.moves(points[:10])
        cpu, received = tab.cpu(), tab.received
        took = tab.moves(points)
        cpu = (tab.cpu() - cpu) / MOVES
        print(f"a step under the mouse: {middle(took):.1f} ms to the frame that shows it (p95 {worst(took):.1f} ms)")
        print(f"  {cpu:.1f} ms of main-thread CPU, {tab.received - received} bytes received")
        received = tab.received
        tab.page.mouse.up()
        settle(tab.page)
        print(f"letting go: {(tab.received - received) / 1e3:.0f} kB received, atlas and pattern")
        tab.close()


def film_demo() -> None:
    """Fifty snapshots of the demo's model, barely trained: what they cost does not depend on what they hold."""
    import torch

    from tracer.analysis.prompt_over_steps import film as shoot
    from tracer.presets import preset
    from tracer.training.loop import train

    config = preset("demo").config
    record = replace(
        config.record, every=1, snapshot_every=1, val_rows=1, repeat_rows=1, text_prompts=1, repeat_prompts=1
    )
    with tempfile.TemporaryDirectory() as folder:
        optim = replace(config.optim, batch_size=1)
        config = replace(config, steps=49, device="cpu", record=record, optim=optim, run=str(Path(folder) / "demo"))
        run = train(config, quiet=True)
        tokens, steps = torch.randint(1, 1000, (1, 64)), run.steps
        torch.set_num_threads(1)
        times = []
        for _ in range(4):
            began = time.perf_counter()
            for _ in shoot(run, tokens, steps, size=64):
                pass
            times.append(time.perf_counter() - began)
        work = 2 * run.meta["n_params"] * 64 * len(steps)  # FLOP, without attention's own 4 tokens^2 d_model a layer
        weights = 4 * run.meta["n_params"] * len(steps)
        print(f"filming {len(steps)} snapshots of the demo, 64 tokens, one core: {min(times[1:]):.2f} s "
              f"({work / 1e9:.1f} GFLOP and {weights / 1e6:.0f} MB of weights)")  # fmt: skip
