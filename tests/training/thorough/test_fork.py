"""What of tests/training/test_fork.py needs a tracker of others."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.training.test_fork import TOY, parent, tiny  # noqa: F401
from tracer.store import open_run
from tracer.training import loop


def test_a_fork_tells_the_trackers_of_its_parent(tmp_path):
    parent = loop.train(tiny(tmp_path / "told", steps=2), quiet=True, track="tensorboard")
    child = loop.fork(parent, 0, replace(parent.config, run=str(tmp_path / "child")), quiet=True)
    alone = loop.fork(parent, 0, replace(parent.config, run=str(tmp_path / "alone")), quiet=True, track=())
    assert child.meta["track"] == ["tensorboard"] and alone.meta["track"] == []
    assert list(child.dir.rglob("events.out.tfevents*")) and not list(alone.dir.rglob("events.out.tfevents*"))


def test_a_fork_that_was_stopped_goes_on_to_the_bit(parent, tmp_path):
    config = replace(parent.config, run=str(tmp_path / "whole"), steps=11, clamp=("L0H1 off 6:9",))
    whole = loop.fork(parent, 4, config, quiet=True)
    loop.fork(parent, 4, replace(config, run=str(tmp_path / "half"), steps=7), quiet=True)
    half = loop.resume(tmp_path / "half", steps=11, quiet=True)
    assert half.meta["parent"] == whole.meta["parent"] and half.meta["snapshot_steps"] == [4, 8, 11]
    assert half.trace["step"].values.tolist() == list(range(4, 12))
    np.testing.assert_array_equal(half.trace["train_loss"], whole.trace["train_loss"])
    np.testing.assert_array_equal(half.trace["head_grad_norm"], whole.trace["head_grad_norm"])


def test_the_command(parent, tmp_path):
    def fork(*args: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "tracer", "fork", *args], capture_output=True, text=True, timeout=300,
            cwd=Path(__file__).parents[3],
        )  # fmt: skip

    done = fork(str(parent.dir), "--step", "8", "--run", str(tmp_path / "c"), "--optim.lr", "0.01", "--clamp", "L0 off")
    assert done.returncode == 0 and "finished at step 12" in done.stdout, done.stdout + done.stderr
    child = open_run(tmp_path / "c")
    changed = replace(
        parent.config, run=child.config.run, clamp=("L0 off",), optim=replace(TOY.optim, lr=0.01, batch_size=4)
    )
    assert child.config == changed and child.meta["parent"]["step"] == 8
    done = fork("--step", "8")
    assert done.returncode == 2 and "A name under checkpoints/" in done.stderr
