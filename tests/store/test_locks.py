"""Who holds a run: locks where a process was forked, and a run that goes away while it is written."""

import errno
import fcntl
import multiprocessing
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tracer.files.disk import NoLocks, alone, write_bytes
from tracer.store import RunWriter, Variable
from tracer.store.layout import Lock, RunGone, is_locked, newest


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # Python 3.12
def test_a_forked_process_keeps_no_lock(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    run, cache, begun, over = Lock(tmp_path / "run"), tmp_path / "cache", context.Event(), context.Event()
    with alone(cache):
        worker = context.Process(target=lambda: (begun.set(), over.wait()), daemon=True)
        worker.start()
        begun.wait()
    run.release()
    try:
        assert not is_locked(tmp_path / "run")
        with cache.with_name(".cache.lock").open("a") as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        over.set()
        worker.join()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_end_of_a_fork_lets_nothing_go(tmp_path: Path) -> None:
    run = Lock(tmp_path / "run")
    worker = multiprocessing.get_context("fork").Process(target=int, daemon=True)
    worker.start()
    worker.join()
    assert is_locked(tmp_path / "run")
    run.check()
    run.release()


@pytest.mark.parametrize("what", ["moved away", "removed"])
def test_a_run_that_goes_away_while_it_is_written_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Away it goes between the look whether it is there and the writing of the rows."""
    place = tmp_path / "run"
    writer = RunWriter.create(place, {"format": 1, "step": 0}, None)
    writer.create_trace(100, {"loss": Variable((), ())}, {})

    def go(rows: object) -> None:
        monkeypatch.undo()
        place.rename(tmp_path / "there") if what == "moved away" else shutil.rmtree(place)
        writer.trace.write(rows)  # pyrefly: ignore[missing-attribute]

    monkeypatch.setattr(writer.trace, "write", go)
    writer.record(3, {"loss": np.array(1.0)})
    writer.flush()
    with pytest.raises(RunGone, match=f"run was {what} while it was written"):
        writer.wait()
    with pytest.raises(RunGone, match=what):
        writer.log({"step": 3})
    writer.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["there"] * (what == "moved away")


def test_files_are_not_written_where_their_run_is_no_more(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run"):
        write_bytes(tmp_path / "run" / "snapshots" / "000001.safetensors", b"", tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """As many on a network answer; what is there can be read all the same."""
    Lock(tmp_path / "run").release()

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    assert not is_locked(tmp_path / "run")
    with pytest.raises(NoLocks, match=f"of {tmp_path}/run keeps no locks"):
        Lock(tmp_path / "run")
    with pytest.raises(NoLocks, match="MANYEYES_CACHE"), alone(tmp_path / "cache"):
        pass


def test_the_newest_of_numbered_runs(tmp_path: Path) -> None:
    assert newest(tmp_path / "a") is None
    for name in ("a", "a-2", "a-3", "a-5"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    assert newest(tmp_path / "a") == tmp_path / "a-3"
