"""What takes long of tests/store/test_sign_of_life.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import children
from tests.store.test_sign_of_life import copied
from tests.waiting import wait
from tracer.files.disk import Damaged
from tracer.store import RunInUse, open_run
from tracer.store.layout import Lock
from tracer.store.sign_of_life import SILENT


@pytest.fixture
def training(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen]]:
    """A run that another process trains, and that process."""
    process = children.start(
        [sys.executable, "-m", "tracer", "train", "induction", "--run", "toy", "--steps", "100000", "--device", "cpu"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    run = tmp_path / "checkpoints" / "toy"
    wait(lambda: process.poll() is not None or (run / "run.json").exists() and len(open_run(run).steps) > 1)
    yield run, process
    process.kill()
    process.wait()


def test_a_copy_lives_as_long_as_the_process(training: tuple[Path, subprocess.Popen], tmp_path: Path) -> None:
    run, process = training
    copy = copied(run, tmp_path / "copy")
    assert open_run(copy).status == "training" and open_run(copy).live
    with pytest.raises(RunInUse, match="a copy of a run that is being trained on"):
        Lock(copy)
    wait(lambda: len(open_run(run).trace["step"]) > 0)
    elsewhere = copied(run, tmp_path / "elsewhere")
    said = json.loads((elsewhere / "lock").read_text())
    (elsewhere / "lock").write_text(json.dumps(said | {"machine": "another", "host": "far"}))
    process.kill()
    process.wait()
    assert open_run(run).status == open_run(copy).status == "interrupted"
    Lock(copy).release()
    assert open_run(elsewhere).status == "training"  # this machine can't ask for that process
    next(
        (elsewhere / "trace.zarr/entropy").glob("c.*")
    ).unlink()  # a copy that listed first brings it with the next one
    with pytest.raises(Damaged, match="is missing.*the run trains on far: copy it once more"):
        open_run(elsewhere).trace["entropy"].load()
    heard = time.time() - SILENT - 1
    os.utime(elsewhere / "lock", (heard, heard))
    assert open_run(elsewhere).status == "interrupted"
    with pytest.raises(Damaged, match="is lost$"):
        open_run(elsewhere).trace["entropy"].load()
