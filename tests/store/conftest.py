"""One small real run for every test of its files."""

import shutil
from dataclasses import replace

import pytest

from tracer.config import RecordConfig
from tracer.presets import preset
from tracer.store import open_run
from tracer.training import loop


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    toy = preset("induction").config
    config = replace(
        toy, run=str(tmp_path_factory.mktemp("runs") / "r"), steps=4, device="cpu",
        model=replace(toy.model, d_model=16), optim=replace(toy.optim, batch_size=4),
        record=RecordConfig(every=2, snapshot_every=2, val_rows=2, repeat_rows=4),
    )  # fmt: skip
    return loop.train(config, quiet=True)


@pytest.fixture
def run(trained, tmp_path):
    """A copy that a test may damage."""
    shutil.copytree(trained.dir, tmp_path / "r")
    return open_run(tmp_path / "r")
