"""A copy of a live run says that it is live, for as long as its process lives or its machine is heard of."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import children
from tests.waiting import wait
from tracer.files.disk import Damaged
from tracer.store import RunInUse, open_run
from tracer.store.layout import Lock
from tracer.store.sign_of_life import SILENT, SignOfLife


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


def copied(run: Path, to: Path) -> Path:
    """As rsync -a copies: with the times."""
    return Path(shutil.copytree(run, to, ignore=shutil.ignore_patterns("*.partial")))


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
    parts = (elsewhere / "trace.zarr/entropy/c").rglob("*")
    next(path for path in parts if path.is_file()).unlink()  # a copy that listed first brings it with the next one
    with pytest.raises(Damaged, match="is missing.*the run trains on far: copy it once more"):
        open_run(elsewhere).trace["entropy"].load()
    heard = time.time() - SILENT - 1
    os.utime(elsewhere / "lock", (heard, heard))
    assert open_run(elsewhere).status == "interrupted"
    with pytest.raises(Damaged, match="is lost$"):
        open_run(elsewhere).trace["entropy"].load()


def test_a_copy_of_what_has_ended_is_not_live(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lock = Lock(tmp_path / "run")
    alive = copied(tmp_path / "run", tmp_path / "alive")
    lock.release()
    ended = copied(tmp_path / "run", tmp_path / "ended")
    with pytest.raises(RunInUse):
        Lock(alive)
    Lock(ended).release()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"machine": "x"}', b"\xff" * 9, b"9" * 5000,
                                     b'{"machine":"x","host":"h","pid":"a","started":1,"directory":""}'])  # fmt: skip
def test_what_strangers_wrote_is_no_sign_of_life(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    Lock(tmp_path).release()


def test_it_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracer.store.sign_of_life.EVERY", 0.01)
    with (tmp_path / "lock").open("a+") as f:
        alive = SignOfLife(f, tmp_path)
        os.utime(tmp_path / "lock", (1, 1))
        wait(lambda: (tmp_path / "lock").stat().st_mtime > 1)
        alive.end()
    assert not (tmp_path / "lock").read_bytes()
