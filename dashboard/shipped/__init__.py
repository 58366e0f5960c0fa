"""What the dashboard brings along, made by scripts/shipped of runs that anybody can train: a film, and small runs."""

from __future__ import annotations

import functools
import tempfile
import threading
import zipfile
from pathlib import Path

from tracer.store import Run, list_runs

FILM = Path(__file__).parent / "forming.bin"
"""How the two heads of an induction circuit formed in the demo, as tracer.pictures.forming packs it."""
SPECIMENS = Path(__file__).parent / "specimens.zip"
"""Runs of the specimens in small, without weights."""


@functools.cache
def film() -> bytes:
    return FILM.read_bytes()


def specimens() -> list[Run]:
    """The shipped runs, unpacked where temporary files go until this process ends."""
    return list_runs(folder())


def folder() -> Path:
    """Theirs: one for all pages, as of two that are unpacked at once the one that is not kept would be removed."""
    with _UNPACKING:
        return Path(_unpacked().name)


_UNPACKING = threading.Lock()


@functools.cache
def _unpacked() -> tempfile.TemporaryDirectory[str]:
    place = tempfile.TemporaryDirectory(prefix="manyeyes-")
    with zipfile.ZipFile(SPECIMENS) as packed:
        packed.extractall(place.name)
    return place


def is_shipped(run: Run) -> bool:
    return run.dir.resolve().parent == folder().resolve()
