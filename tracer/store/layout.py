"""Names of the files of a run directory, and the locks of those who write them.

run.json                     format, config, provenance, status
tokenizer.json               Hugging Face tokenizers format
trace.zarr/                  labelled arrays over `step` (Zarr v3, opens with xarray.open_zarr)
snapshots/000250.safetensors weights after 250 updates
states/000200.safetensors    weights and optimiser state after 200 updates: training can be had again from there
resume/000250.safetensors    weights and optimiser state of the latest point from which training can go on
effects.zarr/                what switching heads off costs at each snapshot (Zarr v3), from `tracer sweep`
surveys/1300-<hash>.safetensors  what heads do over a corpus (`tracer.store.surveys`)
rows/540-664-L1H2-induction.safetensors  what training rows did to a head (`tracer.store.row_effects`)
log.jsonl, samples.jsonl     one JSON object a line
findings.jsonl               what was found to be wrong while the run was made, each kind once
lock                         held (flock) by the process that trains, which it names (`tracer.store.sign_of_life`)
effects.lock                 the same for the process that sweeps
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
import weakref
from pathlib import Path

from tracer.files.disk import LOCKLESS, lockable, refuse_link, refuse_links
from tracer.store.copies import refuse_writing
from tracer.store.sign_of_life import SignOfLife, trains_elsewhere

FORMAT = 4
"""Of every run, whoever trained it; `upgrade` reads 1 to 3."""
LOCK = "lock"
WRITER_TRIES, READER_TRIES = 10, 3000
"""Of 10 ms: a writer keeps its lock, a reader lets go; on a busy machine that may take seconds."""
STEP = re.compile(r"([0-9]{6,12})\.safetensors")
UNCOMMITTED = -1
"""Value of the `step` coordinate in rows that are reserved but not yet committed."""


class NotARun(ValueError):
    """The directory holds no run."""


class NothingRecorded(NotARun):
    """What is asked for is not there yet: nothing was recorded, or nothing swept."""


class NewerFormat(ValueError):
    """The run was written by a later version of manyeyes."""


class RunInUse(ValueError):
    """Another process trains this run at the moment."""


class RunGone(OSError):
    """The directory was moved, removed or replaced while the run was written."""


def snapshot_path(directory: Path, step: int) -> Path:
    return directory / "snapshots" / f"{step:06d}.safetensors"


def state_path(directory: Path, step: int) -> Path:
    return directory / "states" / f"{step:06d}.safetensors"


def resume_path(directory: Path, step: int) -> Path:
    return directory / "resume" / f"{step:06d}.safetensors"


def steps_in(folder: Path) -> list[int]:
    """Step numbers of the complete files in a folder; temporary files, and names of others, are passed by."""
    names = (found[1] for name in names_in(folder) if (found := STEP.fullmatch(name)))
    return sorted(int(name) for name in names if f"{int(name):06d}" == name)


def names_in(folder: Path | str) -> list[str]:
    """What lies there and is not hidden; nothing where there is no such folder.

    A page asks many times what a run holds, and pathlib's glob takes several times as long.
    """
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []


class Lock:
    """An exclusive flock on `<run>/lock`: it vanishes with its process, however that dies.

    Whoever holds it may write below the directory, so that no link may be there; `moves`: only move it as a whole.
    """

    def __init__(self, directory: Path, name: str = LOCK, busy: str = "trained", *, moves: bool = False) -> None:
        refuse_writing(directory)
        if name == LOCK:  # the others are of a run that is there
            directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / name
        refuse_link(self._path) if moves else refuse_links(directory)
        self._file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666), "a+")
        self._alive: SignOfLife | None = None
        try:
            taken = self._take()
        except OSError:
            self._file.close()
            raise
        if not taken:
            self._file.close()
            raise RunInUse(f"{directory} is being {busy} by another process; stop that one first")
        if name == LOCK:
            if host := trains_elsewhere(self._path):
                self._file.close()
                raise RunInUse(f"{directory} is a copy of a run that is being trained on {host}; stop that one first")
            self._alive = SignOfLife(self._file, directory)
        _HELD.add(self)

    def _take(self) -> bool:
        """After readers, which hold it together while they ask `is_locked`; False where a writer has it."""
        writers = 0
        for _ in range(READER_TRIES):
            with contextlib.suppress(BlockingIOError), lockable(self._path.parent):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            try:
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(self._file, fcntl.LOCK_UN)
            except BlockingIOError:  # held by one alone
                writers += 1
            if writers == WRITER_TRIES:
                break
            time.sleep(0.01)
        return False

    def check(self) -> None:
        """RunGone when this is not the directory's lock any more: somebody moved or removed the directory."""
        mine = None if self._file.closed else os.fstat(self._file.fileno())
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if mine is not None and os.path.samestat(self._path.stat(), mine):
                return
        if mine is not None and mine.st_nlink:
            raise RunGone(
                f"{self._path.parent} was moved away while it was written: nothing more is kept, and what was "
                f"committed is in the folder that was moved"
            )
        raise RunGone(f"{self._path.parent} was removed while it was written: nothing more can be kept, start again")

    def release(self) -> None:
        if self._alive is not None:
            self._alive.end()
        self._file.close()


_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


def _let_go() -> None:
    """Of a forked process, whose copy of a lock would keep it beyond the end of the process that took it."""
    for lock in _HELD:
        lock._file.close()


os.register_at_fork(after_in_child=_let_go)


def is_locked(directory: Path) -> bool:
    """Does a living process train this run, or the one that it is a copy of?"""
    path = os.path.join(directory, LOCK)
    if not os.path.isfile(path):
        return False
    descriptor = os.open(path, os.O_RDONLY)  # for reading: the run may be another person's
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in LOCKLESS:  # where there are none nobody here writes: what trains is elsewhere
            raise
    else:
        if not os.fstat(descriptor).st_size:  # whoever held it last let go of it
            return False
    finally:
        os.close(descriptor)
    return bool(trains_elsewhere(Path(path)))


def is_trained_by(directory: Path, pid: int) -> bool:
    """Has this process of this machine the run's lock open? So a number in run.json alone proves nothing."""
    import psutil

    path = directory / LOCK
    try:
        return pid > 0 and pid != os.getpid() and any(
            os.path.samefile(held.path, path) for held in psutil.Process(pid).open_files() if os.path.exists(held.path)
        )  # fmt: skip
    except (psutil.Error, OSError, OverflowError):
        return False


def newest(directory: Path) -> Path | None:
    """The last of name, name-2, name-3, ... that holds a run; None where the first is free."""
    candidate, last, n = directory, None, 1
    while (candidate / "run.json").is_file():
        n, last = n + 1, candidate
        candidate = directory.with_name(f"{directory.name}-{n}")
    return last
