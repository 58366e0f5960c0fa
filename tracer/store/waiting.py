"""Work that somebody asked for and that has not begun: a small file each in `.waiting` beside the runs.

1. A file is written beside its place, locked (flock) and flushed before it gets its name: seen, it is whole and held.
2. Whoever will begin the work holds the lock, which goes with its process: what nobody holds is lost.
3. It is removed once the work has begun, so that a kill in between shows it once more instead of never.
Removing the file takes the work back. It holds what a form asks for: no program, no path to write to, no free option.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from tracer.files.disk import Damaged, beside, flush, read_bytes, refuse_link
from tracer.store.places import ROOT

FOLDER = ".waiting"
MOST = 16 << 10
"""Bytes of a file."""
MOST_SHOWN = 100
"""Files that are read: a page shows each."""
TRIES = 20
"""Of 10 ms, to take a lock: whoever only looks lets go of it at once."""

Text = Annotated[str, Field(max_length=4096)]
Count = Annotated[int, Field(ge=0, le=10**12)]


class Asked(BaseModel):
    """What somebody asked for; each command takes what it knows of it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    command: Literal["train", "open", "fork", "replay", "remedy", "resume", "rows", "sweep", "reproduce"]
    name: Text = ""
    """Of the run that is made, or worked on."""
    of: Text = ""
    """The preset, the model, or the folder of the run."""
    seed: Count = 0
    step: Count = 0
    steps: Count = 0
    options: Annotated[tuple[Text, ...], Field(max_length=1000)] = ()
    """Changed settings, revisions, clamps, specimens, a kind of finding, or a head and a measure."""


class _Content(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    asked: Asked
    since: AwareDatetime
    host: Text


@dataclass(frozen=True)
class Waiting:
    """A file as it was found."""

    path: Path
    asked: Asked | None = None
    since: datetime | None = None
    host: str = ""
    held: bool = False
    """Will a living process of this machine begin it?"""
    damage: str = ""
    """Why the file cannot be understood."""


class Ticket:
    """A file that this process holds."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor
        self._known = os.fstat(descriptor)

    @property
    def there(self) -> bool:
        """False once somebody removed the file, or put another in its place."""
        try:
            return os.path.samestat(os.lstat(self.path), self._known)
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """The work has begun, or was taken back."""
        if self.there:
            self.path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Leave the file to others."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def keep(asked: Asked, root: Path = ROOT) -> Ticket:
    """Write down what is asked for, held by this process; OSError or Damaged where that cannot be."""
    folder = root / FOLDER
    refuse_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.time_ns()}-{os.urandom(4).hex()}.json"
    content = _Content(asked=asked, since=datetime.now(UTC).replace(microsecond=0), host=socket.gethostname())
    aside = beside(path)
    descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.fdopen(descriptor, "wb", closefd=False) as f:
            f.write(content.model_dump_json(indent=1).encode())
        os.fsync(descriptor)
        aside.rename(path)
        flush([folder, root])
    except BaseException:  # a full disk
        os.close(descriptor)
        aside.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise
    return Ticket(path, descriptor)


def waiting(root: Path = ROOT) -> list[Waiting]:
    """All that waits below a folder, or was lost with the process that would have begun it, in order."""
    folder = root / FOLDER
    try:
        refuse_link(folder)
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
    except FileNotFoundError:
        return []
    except (OSError, Damaged) as error:
        return [_damaged(folder, error)]
    return [found for name in names[:MOST_SHOWN] if (found := _read(folder / name)) is not None]


def claim(path: Path) -> Ticket:
    """Hold a file that nobody holds; ValueError where somebody does, or where it is gone."""
    refuse_link(path.parent)
    refuse_link(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise ValueError("it does not wait any more: somebody started it, or removed it") from error
    ticket = Ticket(path, descriptor)
    for _ in range(TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        time.sleep(0.01)
    else:
        ticket.release()
        raise ValueError("another dashboard holds it, which will begin it")
    if not ticket.there:
        ticket.release()
        raise ValueError("it does not wait any more: somebody started it, or removed it")
    return ticket


def forget(path: Path) -> None:
    """Take it back, whoever holds it; a link goes itself, not what it leads to."""
    refuse_link(path.parent)
    path.unlink(missing_ok=True)


def _read(path: Path) -> Waiting | None:
    """None where it is gone by now."""
    try:
        refuse_link(path)
        content = _Content.model_validate_json(read_bytes(path, path.parent, MOST))
        return Waiting(path, content.asked, content.since, content.host, _is_held(path))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        return _damaged(path, f"{path} cannot be understood: {where + ': ' if where else ''}{first['msg'][:200]}")
    except (OSError, ValueError) as error:
        return _damaged(path, error)


def _damaged(path: Path, why: object) -> Waiting:
    """In words that can be printed, whatever bytes a file is called by."""
    return Waiting(path, damage=str(why).encode("utf-8", "replace").decode())


def _is_held(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
