"""Files that can be made again, kept by the hash of what made them: $MANYEYES_CACHE, or manyeyes/ in the user's cache.

An entry is a folder of files and a manifest of their sha256, each written aside and renamed into place, the manifest
last. Whatever does not match its manifest (killed, full disk, two writers) is not there, and gets made again.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

from tracer.files.disk import cache_folder, write_bytes


def key(**parts: Any) -> str:
    """sha256 of JSON values: the name of an entry."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load(entry: str) -> Path | None:
    """The folder of a complete and undamaged entry, or None."""
    path = cache_folder() / entry
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        intact = bool(manifest) and all(_sha256(path / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError, AttributeError):
        return None
    return path if intact else None


def save(entry: str, files: dict[str, bytes]) -> None:
    """Write an entry; a disk that is full or read-only costs the next start its speed and nothing else."""
    path = cache_folder() / entry
    manifest = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    try:
        for name, content in {**files, "manifest.json": json.dumps(manifest).encode()}.items():
            write_bytes(path / name, content)
    except OSError as error:
        message = (
            f"could not keep the tokenised text in {path.parent}: {error.strerror}. The next start makes it again; "
        )
        warnings.warn(message + "free some space, or set MANYEYES_CACHE to another folder", stacklevel=2)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
