"""What takes long of tests/training/test_loop.py."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests import children
from tests.training.test_loop import finished  # noqa: F401
from tracer.presets import PRESETS
from tracer.store import open_run
from tracer.training import loop

pytestmark = pytest.mark.slow


def launch(port: int, rank: int, world: int, *args: str) -> subprocess.Popen:
    """One of `world` processes, as a launcher starts it; `accelerate launch --cpu` starts only one."""
    env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return children.start(
        [sys.executable, "-m", "tracer", *args], cwd=Path(__file__).parents[3], text=True,
        env={**os.environ, **{name: str(value) for name, value in env.items()}},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_two_processes_count_each_target_alike(tmp_path, free_port):
    """Of the 8 rows of a batch, those of one process have more targets that count than those of the other."""
    for name, world in (("one", 1), ("two", 2)):
        args = ["train", "induction", "--run", str(tmp_path / name), "--steps", "6", "--record.every", "1",
                "--model.d-model", "32", "--model.n-ctx", "4", "--optim.batch-size", "8", "--optim.accumulate", "2",
                "--device", "cpu", "--data.corpus", "tests.own_data:Uneven"]  # fmt: skip
        processes = [launch(free_port, rank, world, *args) for rank in range(world)]
        outputs = [process.communicate(timeout=300)[0] for process in processes]
        assert not any(process.returncode for process in processes), outputs
    one, two = (open_run(tmp_path / name).trace["train_loss"].values for name in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=1e-5)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_takes_a_step(name, tmp_path):
    config = PRESETS[name].config
    small = {"data": replace(config.data, corpus="repeated-random", vocab_size=64, mix=None, mix_share=0.0,
                             period_min=4, period_max=12)}  # fmt: skip
    optim = replace(config.optim, batch_size=4)
    record = replace(config.record, val_rows=2, repeat_rows=2)
    run = loop.train(
        replace(config, run=str(tmp_path / name), steps=1, device="cpu", optim=optim, record=record, **small),
        quiet=True,
    )
    assert run.status in ("finished", "diverged")
    assert np.isfinite(run.trace["entropy"][0]).all()
