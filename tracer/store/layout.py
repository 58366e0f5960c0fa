"""Names of the files of a run directory, and the few ways in which they are written.

run.json                     format, config, provenance, status
tokenizer.json               Hugging Face tokenizers format
trace.zarr/                  labelled arrays over `step` (Zarr v3, opens with xarray.open_zarr)
snapshots/000250.safetensors weights after 250 updates
resume/000250.safetensors    weights and optimiser state of the latest point from which training can go on
effects.zarr/                what switching heads off costs at each snapshot (Zarr v3), from `tracer sweep`
surveys/1300-<hash>.safetensors  what heads do over a corpus (`tracer.store.surveys`)
log.jsonl, samples.jsonl     one JSON object a line
lock                         held (flock) by the process that trains; free means nobody does
effects.lock                 the same for the process that sweeps
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from pathlib import Path
from typing import Any

FORMAT, FOREIGN_FORMAT = 1, 2
"""Of runs that `tracer train` made, and of those of other people's models; a reader of 1 only refuses the latter."""
NEEDED = {
    FORMAT: ("config", "created", "d_vocab", "n_params", "preset", "status", "step"),
    FOREIGN_FORMAT: ("created", "kind", "layers", "n_params", "status", "step"),
}
"""What every run.json says, besides its format."""
LOCK_TRIES = 10
UNCOMMITTED = -1
"""Value of the `step` coordinate in rows that are reserved but not yet committed."""


class NotARun(ValueError):
    """The directory holds no run."""


class NewerFormat(ValueError):
    """The run was written by a later version of manyeyes."""


class BrokenSnapshot(ValueError):
    """A snapshot's file is missing, cut off or of another model."""


class RunInUse(ValueError):
    """Another process trains this run at the moment."""


def snapshot_path(directory: Path, step: int) -> Path:
    return directory / "snapshots" / f"{step:06d}.safetensors"


def resume_path(directory: Path, step: int) -> Path:
    return directory / "resume" / f"{step:06d}.safetensors"


def steps_in(folder: Path) -> list[int]:
    """Step numbers of the complete files in a folder; temporary files have another ending."""
    return sorted(int(p.stem) for p in folder.glob("*.safetensors") if p.stem.isdigit())


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside the target, then rename: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, json.dumps(content, indent=1, allow_nan=False).encode())


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Add a line of strict JSON (what is not finite becomes null), on a line of its own after a torn one."""
    line = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False)
    with path.open("ab+") as f:
        if f.tell():
            f.seek(-1, os.SEEK_END)
            line = line if f.read() == b"\n" else "\n" + line
        f.write(line.encode() + b"\n")


def _finite(value: Any) -> Any:
    """JSON has no nan and no infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a JSON-lines file; a torn line (the writer was killed) is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):  # a text may hold other ends of line
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def read_meta(directory: Path) -> dict[str, Any]:
    """run.json, or an error that says why this is not a run that can be opened."""
    path = directory / "run.json"
    if not path.is_file():
        what = "does not exist" if not directory.exists() else "has no run.json, so it is not a run directory"
        raise NotARun(f"{directory} {what}; `tracer ls` lists the runs under checkpoints/")
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise NotARun(
            f"{path} is not readable JSON ({error}); the trace and the snapshots beside it are untouched"
        ) from error
    if not isinstance(meta, dict) or not isinstance(meta.get("format"), int):
        raise NotARun(f"{path} has no 'format' number, so it was not written by manyeyes")
    if meta["format"] > FOREIGN_FORMAT:
        raise NewerFormat(
            f"{directory} has format {meta['format']}, this version reads up to {FOREIGN_FORMAT}: upgrade manyeyes to "
            f"open it"
        )
    if missing := [key for key in NEEDED.get(meta["format"], ()) if key not in meta]:
        raise NotARun(f"{path} has no {', '.join(missing)}, so it was not written by manyeyes")
    return meta


class Lock:
    """An exclusive flock on `<run>/lock`: it vanishes with its process, however that dies."""

    def __init__(self, directory: Path, name: str = "lock", busy: str = "trained") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / name).open("a+")
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:  # perhaps only a reader, which asks `is_locked` and lets go
                time.sleep(0.01)
        self._file.close()
        raise RunInUse(f"{directory} is being {busy} by another process; stop that one first")

    def release(self) -> None:
        self._file.close()


def is_locked(directory: Path) -> bool:
    """Does a living process train this run?"""
    path = directory / "lock"
    if not path.exists():
        return False
    with path.open("rb") as f:  # for reading: the run may be another person's
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def unused(directory: Path) -> Path:
    """The directory, or the first of name-2, name-3, ... that is free: nothing is ever overwritten."""
    candidate, n = directory, 1
    while candidate.exists() and any(candidate.iterdir()):
        n += 1
        candidate = directory.with_name(f"{directory.name}-{n}")
    return candidate
