"""Copies of runs that lie elsewhere: what is a URL, where its copy is, and what is noted of it.

`MANYEYES_CACHE`/remote/<hash of the folder's URL>/<run>/ holds what was fetched, `.<run>.json` beside it where it comes
from and what is there. That file is never the run's own, so no run can name an address.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import time
from pathlib import Path
from typing import Any

from tracer.files.disk import MOST_LINES, cache_folder, read_json

SILENCE = 120.0
"""Seconds without a newer file after which a training elsewhere counts as interrupted."""
KEPT = re.compile(r"(snapshots|states)/([0-9]{6,12})\.safetensors")
NAME = re.compile(r"\w[\w.-]*")
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(name: object) -> bool:
    return isinstance(name, str) and bool(URL.match(name))


def is_address(name: object) -> bool:
    """A URL, or what Path makes of one: s3:/bucket. One letter is a drive of Windows."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(name)))


def split(places: str) -> list[str]:
    """Folders and URLs with os.pathsep between them; the ":" of a scheme and of a port separate nothing."""
    url = r"[A-Za-z][A-Za-z0-9+.-]+://[^/:;]*(?::[0-9]+(?=[/:;]|$))?"
    return re.findall(rf"{url}[^{os.pathsep}]*|[^{os.pathsep}]+", places)


def below(url: str) -> Path:
    """The folder in which the copies of all runs below a URL are, or would be."""
    return place_of(f"{url.rstrip('/')}/run")[0].parent


def _folder() -> Path:
    return _resolved(cache_folder() / "remote")


@functools.cache
def _resolved(folder: Path) -> Path:
    """Asked three times for each run of a list."""
    return folder.resolve()


def place_of(url: str) -> tuple[Path, str]:
    """Where the copy of a run is, and its URL without what does not count."""
    url = url.rstrip("/")
    above, _, name = url.rpartition("/")
    if not NAME.fullmatch(name) or above.endswith(":/"):
        raise ValueError(f"{url} names no folder of a run: {name!r} is no run's name")
    return _folder() / hashlib.sha256(above.encode()).hexdigest()[:16] / name, url


def note_path(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.json")


def is_copy(directory: Path) -> bool:
    """Does it lie where copies of runs at URLs are?"""
    return directory.resolve().parent.parent == _folder()


def note_of(directory: Path) -> dict[str, Any]:
    """Where a copy comes from, what is there and what is here; empty for a folder that is no copy."""
    directory = directory.resolve()
    if not is_copy(directory):
        return {}
    try:
        return read_json(note_path(directory), directory.parent, MOST_LINES)
    except (OSError, ValueError):
        return {}


def origin(directory: Path) -> str:
    """The URL that a folder is the copy of; empty where it is a run of its own."""
    return note_of(directory).get("url", "")


def refuse_writing(name: str | Path) -> None:
    """ValueError for a run that lies elsewhere."""
    if url := name if is_url(name) else origin(Path(name)):
        raise ValueError(
            f"{url} lies elsewhere and is only read: write to a folder of this machine and copy that there "
            f"(aws s3 sync, rsync, hf upload), or copy the run here first"
        )


def steps(directory: Path, folder: str) -> list[int]:
    """Steps of which a folder at the origin, snapshots or states, holds a file."""
    names = (KEPT.fullmatch(name) for name in note_of(directory).get("there", {}))
    return sorted(int(found[2]) for found in names if found and found[1] == folder)


def alive(directory: Path) -> bool:
    """Was a file of a training at the URL written within SILENCE? Of a folder its lock's file says it."""
    noted = note_of(directory)
    return bool(noted) and abs(time.time() - noted["newest"]) < SILENCE  # no time of tomorrow, by another clock
