"""A copy of a live run says that it is live, for as long as its process lives or its machine is heard of."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait
from tracer.store import RunInUse
from tracer.store.layout import Lock
from tracer.store.sign_of_life import SILENT, SignOfLife, machine, trains_elsewhere


def copied(run: Path, to: Path) -> Path:
    """As rsync -a copies: with the times."""
    return Path(shutil.copytree(run, to, ignore=shutil.ignore_patterns("*.partial")))


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


@pytest.mark.parametrize(("ago", "lives"), [(0, True), (2 * SILENT, False), (-2 * SILENT, False)])
def test_another_machine_s_run_lives_as_long_as_its_lock_is_touched(tmp_path: Path, ago: float, lives: bool) -> None:
    """rsync brings the lock's time too; nobody here can ask for that process."""
    said = {"machine": "another", "host": "far", "pid": 1, "started": 0, "directory": "/r"}
    (tmp_path / "lock").write_text(json.dumps(said))
    heard = time.time() - ago
    os.utime(tmp_path / "lock", (heard, heard))
    assert trains_elsewhere(tmp_path / "lock") == ("far" if lives else "")


@pytest.mark.parametrize(("later", "lives"), [(0, True), (0.9, True), (-0.9, True), (5, False), (-5, False)])
def test_a_process_of_this_machine_is_known_by_when_it_began(tmp_path: Path, later: float, lives: bool) -> None:
    """A number is given to another process once its own has ended, so one that began at another time is another."""
    began = psutil.Process().create_time() + later
    said = {"machine": machine(), "host": "here", "pid": os.getpid(), "started": began, "directory": "/r"}
    (tmp_path / "lock").write_text(json.dumps(said))
    assert trains_elsewhere(tmp_path / "lock") == ("here" if lives else "")
