"""Several processes through Accelerate's own launcher: the command that people type, and the losses of one process.

`accelerate launch --cpu` starts a single process whatever --num_processes says, unless MPI is there; `--multi_gpu`
starts as many as it is told, and `--device cpu` keeps each of them off the GPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tracer.store import open_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SMALL = ("--record.every", "1", "--model.d-model", "32", "--optim.accumulate", "2", "--optim.qk-clip", "0.5",
         "--device", "cpu")  # fmt: skip


def launched(world: int, port: int, *args: str) -> subprocess.CompletedProcess:
    """`accelerate launch ... -m tracer`, and what it and its processes printed."""
    plural = ("--multi_gpu", "--main_process_port", str(port)) if world > 1 else ("--cpu",)
    fixed = ("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")
    launcher = (sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(world), *plural, *fixed)
    return subprocess.run(
        (*launcher, "-m", "tracer", *args), cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip


def train(world: int, port: int, run: Path, steps: int = 6, batch_size: int = 8) -> subprocess.CompletedProcess:
    length = ("--steps", str(steps), "--optim.batch-size", str(batch_size))
    return launched(world, port, "train", "induction", "--run", str(run), *length, *SMALL)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten steps in one process."""
    run = tmp_path_factory.mktemp("scaling") / "one"
    done = train(1, 0, run, steps=10)
    assert done.returncode == 0, done.stdout
    return run


def losses(run: Path) -> np.ndarray:
    return open_run(run).trace["train_loss"].values


def test_two_processes_of_accelerate_launch_train_as_one_and_go_on_as_one(tmp_path, free_port, alone):
    """Same global batch, same losses and weights; and after `resume` in two processes, still."""
    run = tmp_path / "two"
    done = train(2, free_port, run)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("parameters on cpu") == 1  # one of the two speaks and writes
    np.testing.assert_allclose(losses(run), losses(alone)[:7], rtol=1e-5)
    done = launched(2, free_port, "resume", str(run), "--steps", "10")
    assert done.returncode == 0, done.stdout
    np.testing.assert_allclose(losses(run), losses(alone), rtol=1e-5)
    weights, expected = (open_run(r).model(10).state_dict() for r in (run, alone))  # pyrefly: ignore[missing-attribute]
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name], value, atol=1e-4, err_msg=name)


def test_a_batch_that_two_processes_cannot_share_is_refused_before_anything_is_written(tmp_path, free_port):
    """Which also proves that there were two."""
    done = train(2, free_port, tmp_path / "odd", batch_size=6)
    assert done.returncode != 0
    assert "batch_size=6 is not divisible by 2 processes x accumulate=2" in " ".join(done.stdout.split())
    assert not (tmp_path / "odd").exists()
