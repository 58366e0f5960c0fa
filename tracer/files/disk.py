"""How the files of a run are read and written.

Read: only regular files inside the run's own folder, and no more of them than is sensible; what is cut off, changed or
missing is `Damaged`, by name. Written: whole or not at all, and on the disk before anything that counts on it:
1. content goes to a file beside its place, 2. is flushed (fsync), 3. takes the name, 4. the folder is flushed.
Several files are written together in a `Batch`, whose flushes run side by side.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_JSON = 4 << 20
"""Bytes of run.json: a run of 100 layers and 10,000 snapshots takes a tenth of it."""
MOST_LINES = 256 << 20
"""Bytes of log.jsonl and of samples.jsonl."""
MOST_SAMPLES = 16 << 20
"""Bytes of a samples.jsonl that a page reads, which reads it whole: 10,000 samples of 500 tokens."""
MOST_TOKENIZER = 48 << 20
"""Bytes of tokenizer.json; Gemma's, of 262,144 tokens, takes 33 MB."""
LOCKLESS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system says that keeps no locks: many on a network, FUSE."""
FLUSHING = 16
"""Files flushed at a time: a file system writes what waits together at once."""


class Damaged(ValueError):
    """A file of a run is missing, cut off, changed, too large or not the run's own; the message names it."""


class NoLocks(OSError):
    """The file system keeps no locks (flock), by which two processes never write the same files."""


class BrokenSnapshot(Damaged):
    """A snapshot's file is missing, cut off or of another model."""


def cache_folder() -> Path:
    """Of what can be made or fetched again: $MANYEYES_CACHE, or manyeyes/ in the user's cache."""
    chosen = os.environ.get("MANYEYES_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "manyeyes")
    return Path(chosen).expanduser()


def regular(path: Path, root: Path | None, most: int) -> int:
    """The size of a regular file inside `root` (None: anywhere) of at most `most` bytes.

    FileNotFoundError, or Damaged with the reason.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Damaged(f"{path} is no regular file, so it is not read")
    if root is not None and not path.resolve().is_relative_to(root.resolve()):
        raise Damaged(f"{path} leads out of the run's own folder, so it is not read")
    if found.st_size > most:
        raise Damaged(f"{path} has {found.st_size:,} bytes, more than the {most:,} that such a file may have")
    return found.st_size


def refuse_links(directory: Path) -> None:
    """Damaged where something below a folder is a link, or has another name besides: writing would change what it leads
    to. tar, git and rsync carry such links; the folder itself may be one."""
    ahead = [os.fspath(directory)]
    while ahead:
        folder = ahead.pop()
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:  # another process clears up
            for entry in entries:
                refuse_link(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)


def refuse_link(path: str | Path) -> None:
    """Damaged where this is a link, or a file that has another name besides."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        what = f"is a link to {os.readlink(path)}, and nothing is written through a link"
    elif stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        what = "has another name elsewhere (a hard link), where writing would change it too"
    else:
        return
    raise Damaged(f"{path} {what}: put a copy of it in its place, or remove it")


def read_bytes(path: Path, root: Path | None, most: int) -> bytes:
    """The content of a regular file inside `root`; of one that is replaced meanwhile, the old or the new, whole."""
    regular(path, root, most)
    with path.open("rb") as f:
        return f.read(min(os.fstat(f.fileno()).st_size, most))


def read_json(path: Path, root: Path | None, most: int = MOST_JSON) -> Any:
    """Strict JSON of bounded size and depth; ValueError when it is none."""
    from pydantic_core import from_json

    return from_json(read_bytes(path, root, most), allow_inf_nan=False)


def read_yaml(path: Path, most: int = 1 << 16) -> Any:
    """A YAML or JSON file that a person wrote, of bounded size; ValueError when it is none."""
    import yaml

    try:
        return yaml.safe_load(read_bytes(path, None, most))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def checksum(*contents: Any) -> str:
    """CRC-32 of bytes in eight hexadecimal digits: finds damage, not intent."""
    value = 0
    for content in contents:
        value = zlib.crc32(content, value)
    return f"{value:08x}"


def beside(path: Path) -> Path:
    """A place for content that has not its name yet; another each time, as threads and processes write side by side."""
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}.partial")


@contextmanager
def lockable(folder: Path) -> Iterator[None]:
    """NoLocks, in words, where a lock of a file of this folder cannot be taken."""
    try:
        yield
    except OSError as error:
        if error.errno not in LOCKLESS:
            raise
        raise NoLocks(
            f"the file system of {folder} keeps no locks ({error.strerror}), without which two processes could write "
            f"there at once: name a folder on a local disk (MANYEYES_RUNS for runs, MANYEYES_CACHE for the cache), or "
            f"mount it with locks"
        ) from error


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One thread of one process at a time, by a lock (flock) on a hidden file beside a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as f:
        with lockable(path.parent):
            fcntl.flock(f, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(f, fcntl.LOCK_UN)  # closing does not, where a process was forked meanwhile


class Batch:
    """Files that appear together, each whole: nothing has its name before all of them are on the disk."""

    def __init__(self, root: Path | None = None) -> None:
        """`root`: what must be there already. One that was moved away is not made again by what is written below."""
        self._root = root
        self._staged: dict[Path, Path] = {}
        self._folders: set[Path] = set()

    def stage(self, path: Path, content: Any) -> None:
        """Write beside the place, in a folder made for it if need be; `commit` gives the name."""
        self.make(path.parent)
        aside = self._staged.setdefault(path, beside(path))
        try:
            with aside.open("wb") as f:
                f.write(content)
        except BaseException:  # a full disk: what there is of it must not get its name with the others
            self._staged.pop(path, None)
            aside.unlink(missing_ok=True)
            raise

    def make(self, folder: Path) -> None:
        """Make a folder, and those above it as far as `root`."""
        missing = []
        while not folder.exists():
            if folder == self._root:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
            missing.append(folder)
            folder = folder.parent
            self._folders.add(folder)
        for one in reversed(missing):
            one.mkdir(exist_ok=True)

    def staged(self, path: Path) -> Path | None:
        """Where the new content of a file is before it has its name."""
        return self._staged.get(path)

    def commit(self, failure: OSError | None = None) -> None:
        """Flush all, name all, flush their folders; `failure`: why all are dropped instead, raised when they are."""
        staged, self._staged = self._staged, {}
        folders, self._folders = self._folders, set()
        try:
            if failure is not None:
                raise failure
            flush(staged.values())
            for path, aside in staged.items():
                aside.replace(path)
        except BaseException:
            for aside in staged.values():
                aside.unlink(missing_ok=True)
            raise
        flush(folders | {path.parent for path in staged})


def flush(paths: Iterable[Path]) -> None:
    """Wait until files, or the names in folders, are on the disk."""
    waiting = list(paths)
    if len(waiting) < 2:
        for path in waiting:
            _flush(path)
        return
    with ThreadPoolExecutor(min(FLUSHING, len(waiting)), thread_name_prefix="manyeyes-flush") as pool:
        list(pool.map(_flush, waiting))


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: Any, root: Path | None = None) -> None:
    """Replace a file: a reader, and a machine that lost power, has the old one or the new one, never a part.

    `root`: as of a `Batch`."""
    batch = Batch(root)
    batch.stage(path, content)
    batch.commit()


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Add a line of strict JSON (what is not finite becomes null), on a line of its own after a torn one.

    Whole or not at all: what a full disk took of a line is cut off again.
    """
    line = _as_line(content)
    with path.open("ab+", buffering=0) as f:
        if end := f.seek(0, os.SEEK_END):
            f.seek(-1, os.SEEK_END)
            line = line if f.read() == b"\n" else b"\n" + line
        try:
            if (written := f.write(line)) != len(line):
                f.write(line[written or 0 :])  # which says why
        except OSError:
            os.ftruncate(f.fileno(), end)
            raise


def write_lines(path: Path, contents: Iterable[dict[str, Any]]) -> None:
    """Replace a file by lines of strict JSON, as `write_bytes` does."""
    write_bytes(path, b"".join(map(_as_line, contents)), path.parent)


def _as_line(content: dict[str, Any]) -> bytes:
    return json.dumps(finite(content), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"


def finite(value: Any) -> Any:
    """What JSON can say of it, which has no nan and no infinity: null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_lines(path: Path, kinds: dict[str, Any], most: int = MOST_LINES) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file that hold these fields; a torn line (the writer was killed) is left out."""
    try:
        content = read_bytes(path, path.parent, most)
    except FileNotFoundError:
        return []
    rows = [row for row in map(_line, content.split(b"\n")) if isinstance(row, dict)]
    return [row for row in rows if all(isinstance(row.get(name), kind) for name, kind in kinds.items())]


def _line(text: bytes) -> Any:
    from pydantic_core import from_json

    try:
        return from_json(text, allow_inf_nan=False) if text else None
    except ValueError:
        return None


def clear_partial(directory: Path, but: str = "") -> None:
    """Remove what writers that died left beside its place; not below the folder `but`, which another one writes."""
    for path in list(directory.rglob(".*.partial")):
        if path.relative_to(directory).parts[0] == but:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
