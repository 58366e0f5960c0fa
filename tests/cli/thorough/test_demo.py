"""The slow truth, end to end: `tracer demo` in a process of its own, and the causal proof on what it left.

Of 800 steps, for its heads have formed by 750; all 1,300 are what `make demo` trains.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tracer import ablate
from tracer.data import probes
from tracer.store import open_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo, trained by the command line from an empty folder, with its dashboard beside it."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "tracer", "demo", "--stay", "False", "--steps", "800"], cwd=folder, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return open_run(folder / "checkpoints" / "demo-0"), done.stdout


def test_an_induction_head_forms(demo):
    run, output = demo
    induction = run.trace["induction"].max(["layer", "head"])
    assert run.status == "finished"
    assert float(induction[0]) < 0.1, "at the start there is none"
    assert float(induction[-1]) > 0.6
    assert float(run.trace["repeat_loss"][-1]) < float(run.trace["first_copy_loss"][-1]) - 3
    assert re.search(r"dashboard: http://localhost:\d+/\?run=demo-0", output)
    assert "strongest induction head" in output and "recording took" in output


def test_switching_off_the_induction_heads_breaks_it_and_others_do_not(demo):
    run, _ = demo
    scores = run.trace["induction"].isel(step=-1).values[1]
    ranked = np.argsort(scores)[::-1]
    model, probe = run.model(), probes.repeated(run.meta["d_vocab"], run.config.model.n_ctx)

    def cost(heads):
        effect = ablate.effect(model, probe.tokens, [(1, int(h)) for h in heads])
        return float(effect.delta[:, probe.predictable].mean())

    assert cost(ranked[:2]) > 1.0
    assert cost(ranked[2:]) < 1.0


def test_a_second_demo_shows_what_is_there(demo):
    run, _ = demo
    before = run.meta
    done = subprocess.run(
        [sys.executable, "-m", "tracer", "demo", "--no-dashboard"], cwd=run.dir.parent.parent, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is there already" in done.stdout and run.meta == before
