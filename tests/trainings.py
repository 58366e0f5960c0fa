"""Short trainings of the toy: in this process, or as the command line starts them."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests import children
from tracer.config import RecordConfig, TrainConfig
from tracer.presets import preset

TOY = preset("induction").config


def tiny(directory: Path, **changes) -> TrainConfig:
    """The toy recipe, smaller and shorter."""
    record = RecordConfig(every=4, snapshot_every=8, log_every=10, val_rows=8, repeat_rows=32)
    config = replace(TOY, run=str(directory), steps=20, device="cpu", record=record)
    config = replace(config, model=replace(TOY.model, d_model=32, n_ctx=40), optim=replace(TOY.optim, batch_size=8))
    return replace(config, **changes)


def diverging(directory: Path, **optim: Any) -> TrainConfig:
    """A model without norms, which diverges at a rate of 1."""
    config = tiny(directory, steps=30)
    moved = replace(config.optim, **dict[str, Any](name="sgd", warmup=0, clip=None, lr=1.0) | optim)
    return replace(config, model=replace(config.model, norm="none"), optim=moved)


def start(directory: Path, *options: str) -> subprocess.Popen:
    """The command line, in a process of its own until the end of the test; what it prints is in `<directory>.txt`."""
    with directory.with_suffix(".txt").open("w") as output:
        return children.start(
        [sys.executable, "-m", "tracer", "train", "induction", "--run", str(directory), "--device", "cpu",
         "--record.every", "2", "--record.snapshot-every", "4", "--record.val-rows", "4", "--optim.batch-size", "8",
         "--model.d-model", "32", *options],
            stdout=output, stderr=subprocess.STDOUT, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
