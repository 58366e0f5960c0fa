"""Tests in a fork of a process that has imported the libraries already, within a limit of time.

Each slot is such a process, with an environment and a scratch folder of its own; what a test leaves behind in either is
gone before the next one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from benchmarks.mutants import mutated
from benchmarks.mutants.house import House

GONE = 0.05
"""Seconds between two looks at whether a fork is done."""


@dataclass(frozen=True)
class Job:
    tests: tuple[str, ...]
    """Node ids, in this order, or files."""
    seconds: float
    mutant: str | None = None
    """The file that `mutated.keep` wrote."""
    lines: str | None = None
    """Where to record which lines each test runs; then all tests run, whatever fails."""
    keep_made: bool = False
    """Leave what `made_once` made for the next job: right only where nothing is mutated."""


@dataclass(frozen=True)
class Outcome:
    failed: str | None
    """The first test that failed; "collection" where they could not be collected, "crash" where the process died."""
    timed_out: bool
    seconds: float
    ran: tuple[str, ...]
    """Tests that began, in order."""
    log: str
    """The end of what pytest wrote."""


class Slot:
    """A warm process that forks one job after another."""

    def __init__(self, house: House, number: int) -> None:
        processes = multiprocessing.get_context("spawn")
        self._here, there = processes.Pipe()
        self._process = processes.Process(target=_serve, args=(there, house, number, os.getpid()), daemon=True)
        self._process.start()
        there.close()

    def run(self, job: Job) -> Outcome:
        self._here.send(job)
        return self._here.recv()

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        self._here.close()  # which ends it, once it has cleared up
        self._process.join()


def _serve(pipe: Connection, house: House, number: int, parent: int) -> None:
    from tests.reaping import VARIABLE, marked  # of the tool's own tree, wherever the house stands
    from tests.surroundings import surroundings

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # of the process that started it, as it ends
    mark = uuid.uuid4().hex
    with (
        contextlib.suppress(EOFError, KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix=f"mutants-{number}-", ignore_cleanup_errors=True) as folder,
    ):
        scratch = Path(folder)
        paths = [Path(__file__).with_name("site"), house.root, Path(__file__).parents[2]]
        os.environ |= surroundings(folder) | {
            VARIABLE: mark, "TMPDIR": str(scratch / "tmp"), "PYTEST_XDIST_WORKER": "gw0",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # one of them finds itself imported already, and warns
            "PYTHONPATH": os.pathsep.join(map(str, dict.fromkeys(paths))),
        }  # fmt: skip
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        tempfile.tempdir = None
        (scratch / "tmp").mkdir()
        for module in house.warm:
            importlib.import_module(module)
        warm = set((scratch / "tmp").iterdir())  # what an import made has to stay: AppTest's folder for its scripts
        while True:
            job: Job = pipe.recv()
            outcome = _forked(job, house, scratch, parent)
            for process in marked(mark):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            stays = {scratch / "tmp", scratch / "inductor"} | ({scratch / "base"} if job.keep_made else set())
            for left in {*scratch.iterdir(), *(scratch / "tmp").iterdir()} - stays - warm:
                _remove(left)
            pipe.send(outcome)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _forked(job: Job, house: House, scratch: Path, parent: int) -> Outcome:
    said, log, start = scratch / "said.json", scratch / "log", time.monotonic()
    said.unlink(missing_ok=True)
    pid = os.fork()
    if not pid:
        _child(job, house, scratch, said, log)
    status, timed_out = None, False
    try:
        while status is None:
            done, code = os.waitpid(pid, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(code)
            elif time.monotonic() - start > job.seconds or os.getppid() != parent:
                timed_out = True
                break
            else:
                time.sleep(GONE)
    finally:
        with contextlib.suppress(ProcessLookupError):  # the rest of its group, or all of it
            os.killpg(pid, signal.SIGKILL)
        if status is None:
            os.waitpid(pid, 0)
    text = log.read_text(errors="replace")[-4000:] if log.exists() else ""
    took = time.monotonic() - start
    found = json.loads(said.read_text()) if said.exists() else {"failed": None, "ran": []}
    failed = found["failed"] or (None if timed_out or status == 0 else "collection" if status in {2, 4, 5} else "crash")
    return Outcome(failed, timed_out, took, tuple(found["ran"]), text)


def _child(job: Job, house: House, scratch: Path, said: Path, log: Path) -> NoReturn:
    status = 70
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for stream, number in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (out, 2)):
            os.dup2(stream, number)
        os.chdir(house.root)
        sys.path[:] = [str(house.root), *(one for one in sys.path if one != str(house.root))]
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        if job.mutant:
            os.environ[mutated.VARIABLE] = job.mutant
            mutated.install(job.mutant)
        status = _tests(job, house, scratch, said)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)  # what the libraries do at exit is for the process that imported them


def _tests(job: Job, house: House, scratch: Path, said: Path) -> int:
    (scratch / "base").mkdir(exist_ok=True)
    arguments = [
        *job.tests, "-q", "--no-header", "-p", "no:cacheprovider", "--tb=short",
        f"--rootdir={house.root}", f"--basetemp={scratch / 'base' / 'run'}",
    ]  # fmt: skip
    if not job.lines:
        return int(pytest.main([*arguments, "-x"], plugins=[_Told(said, job.tests)]))
    from benchmarks.mutants.recorder import Recorder

    recorder = Recorder(Path(job.lines), [str(house.root / one) for one in house.sources])
    status = recorder.record(lambda plugin: int(pytest.main(arguments, plugins=[plugin])))
    return 0 if status == 1 else status  # tests that fail without a mutant are known then, and not asked


class _Told:
    """A plugin of pytest: the order that was asked for, and what became of it, written as it happens."""

    def __init__(self, said: Path, order: Sequence[str]) -> None:
        self.said, self.order = said, {test: number for number, test in enumerate(order)}
        self.failed: str | None = None
        self.ran: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.order.get(item.nodeid, len(self.order)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.ran.append(nodeid)
        self._write()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid
            self._write()

    def _write(self) -> None:
        self.said.write_text(json.dumps({"failed": self.failed, "ran": self.ran}))
