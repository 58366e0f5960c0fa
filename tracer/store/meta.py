"""run.json: what a run says of itself, read only where every word of it can be."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any

from tracer.files.disk import MOST_JSON, Damaged, checksum, read_bytes, write_bytes
from tracer.store.layout import FORMAT, NewerFormat, NotARun
from tracer.store.upgrade import upgraded

SETTLED = 100_000_000
"""Nanoseconds: a file that is changed twice in a tick of the file system's clock keeps its time."""
SMALL = 64 << 10
"""Bytes of a run.json that is kept in memory; that of the demo has 3 kB."""


def read_meta(directory: Path) -> dict[str, Any]:
    """run.json, or an error that says why this is not a run that can be opened."""
    path = directory / "run.json"
    if not path.exists():
        what = "does not exist" if not directory.exists() else "has no run.json, so it is not a run directory"
        raise NotARun(f"{directory} {what}; `tracer ls` lists the runs under checkpoints/")
    from pydantic_core import from_json

    found = path.stat()
    young = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < SETTLED
    if young or found.st_size > SMALL:
        return from_json(_checked(directory))
    return from_json(_known(directory, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


@functools.lru_cache(4096)
def _known(directory: Path, *_inode: int) -> bytes:
    """Of a file that was not changed since: a page asks a hundred times, and each check costs more than the reading."""
    return _checked(directory)


def _checked(directory: Path) -> bytes:
    """The text of a run.json that says what can be, in the words of today's format; or NotARun."""
    from pydantic_core import from_json

    from tracer.store import schema  # pydantic takes 0.1 s to load: not before there is a run

    path, as_it_was = directory / "run.json", None
    try:
        text = read_bytes(path, directory, MOST_JSON)
        meta = from_json(text, allow_inf_nan=False)
    except Damaged as error:
        raise NotARun(str(error)) from error
    except ValueError as error:
        raise NotARun(
            f"{path} is not readable JSON ({error}); the trace and the snapshots beside it are untouched"
        ) from error
    if not isinstance(meta, dict) or type(meta.get("format")) is not int:
        raise NotARun(f"{path} has no 'format' number, so it was not written by manyeyes")
    if meta["format"] > FORMAT:
        raise NewerFormat(
            f"{directory} has format {str(meta['format'])[:20]}, this version reads up to {FORMAT}: upgrade manyeyes "
            f"to open it"
        )
    if meta["format"] < 1:
        raise NotARun(f"{path} has format {str(meta['format'])[:20]}, which there is not")
    if meta["format"] < FORMAT:
        as_it_was, meta = meta, upgraded(meta)
    if missing := schema.missing(meta):
        raise NotARun(f"{path} has no {', '.join(missing)}, so it was not written by manyeyes")
    if wrong := schema.problem(meta):
        raise NotARun(f"{path} says what cannot be: {wrong}")
    if as_it_was is None:
        return text
    if not is_edited(as_it_was) and "run.json" in meta.get("digests", {}):
        meta["digests"] = {**meta["digests"], "run.json": own_digest(meta)}
    return _text(meta)


def write_meta(directory: Path, meta: dict[str, Any]) -> None:
    """Replace run.json, which holds a checksum of itself among those of the other files."""
    digests = meta.get("digests", {})
    text = _text({**meta, "digests": {**digests, "run.json": own_digest(meta)}})
    write_bytes(directory / "run.json", text, directory)


def is_edited(meta: dict[str, Any]) -> bool:
    """Was run.json changed by another hand since manyeyes wrote it?"""
    noted = meta.get("digests", {}).get("run.json")
    return noted is not None and noted != own_digest(meta)


def own_digest(meta: dict[str, Any]) -> str:
    """The checksum of run.json as it would be without its own."""
    others = {name: digest for name, digest in meta.get("digests", {}).items() if name != "run.json"}
    return checksum(_text({**meta, "digests": others}))


def _text(meta: dict[str, Any]) -> bytes:
    return json.dumps(meta, indent=1, allow_nan=False).encode()
