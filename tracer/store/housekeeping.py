"""What a person does with runs: rename, note, remove, bring back. Never while a process works on one."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

from tracer.files.disk import read_bytes, write_bytes
from tracer.store.layout import Lock
from tracer.store.meta import read_meta
from tracer.store.places import ROOT
from tracer.store.run import Run

TRASH = ".trash"
"""Beside the runs; what is removed stays in it until somebody empties it."""
NOTE = "note.txt"
LONGEST_NOTE = 2000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def why_no_name(name: str) -> str:
    """Why no run can be called this; empty where one can."""
    if NAME.fullmatch(name):
        return ""
    return "a run's name is made of letters, digits, '.', '_' and '-', and starts with a letter or digit"


def note(run: Run) -> str:
    """What somebody wrote about the run; empty where nobody did."""
    if not os.path.lexists(f"{run.dir}/{NOTE}"):  # of a thousand runs few have one
        return ""
    try:
        return read_bytes(run.dir / NOTE, run.dir, 4 * LONGEST_NOTE).decode("utf-8", "replace")[:LONGEST_NOTE]
    except (OSError, ValueError):
        return ""


def write_note(run: Run, text: str) -> None:
    """Plain text beside the run's own files; an empty one takes it away."""
    if text.strip():
        write_bytes(run.dir / NOTE, text.strip()[:LONGEST_NOTE].encode(), run.dir)
    else:
        (run.dir / NOTE).unlink(missing_ok=True)


def rename(run: Run, name: str) -> Run:
    """The run under another name in the same folder; ValueError where there is one, or where a process works on it."""
    if why := why_no_name(name):
        raise ValueError(why)
    there = run.dir.resolve().with_name(name)
    if there.exists():
        raise ValueError(f"{there} is there already: choose another name")
    return Run(_move(run.dir, there))


def remove(run: Run) -> Path:
    """Into the trash beside it, from where `restore` brings it back; where it went."""
    trash = run.dir.resolve().parent / TRASH
    trash.mkdir(exist_ok=True)
    return _move(run.dir, trash / f"{time.time_ns()}-{run.name}")


def restore(removed: Path) -> Run:
    """Back under its name; ValueError where another run has it by now."""
    name = removed.name.partition("-")[2]
    there = removed.parent.parent / name
    if there.exists():
        raise ValueError(f"{there} is there again: rename that one first")
    return Run(removed.rename(there))


def discard(removed: Path) -> None:
    """For good; ValueError for what is not in the trash."""
    if removed.parent.name != TRASH:
        raise ValueError(f"{removed} is not in {TRASH}: only what was removed is deleted for good")
    shutil.rmtree(removed, ignore_errors=True)


def empty_trash(older: float, root: str | Path = ROOT) -> None:
    """What has been in the trash for more than so many seconds."""
    for removed in Path(root, TRASH).glob("*-*"):
        began = removed.name.partition("-")[0]
        if began.isdecimal() and time.time_ns() - int(began) > older * 1e9:
            discard(removed)


def _move(directory: Path, there: Path) -> Path:
    """Under both locks, so that nobody begins to train or to sweep it meanwhile; they move along, and are let go."""
    read_meta(directory)  # locks make a folder where there is none
    with ExitStack() as held:
        for what in (("lock",), ("effects.lock", "swept")):
            held.callback(Lock(directory, *what, moves=True).release)
        return directory.resolve().rename(there)
