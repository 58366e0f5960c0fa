"""Locks of a run and of a cache, where the process that has them was forked."""

import fcntl
import multiprocessing
from pathlib import Path

import pytest

from tracer.files.disk import alone
from tracer.store.layout import Lock, is_locked


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
