"""Whether a run that is copied or mounted from another machine still trains: its process touches the lock's file.

A lock (flock) is known on one machine only, and a copy of a run has none. So whoever holds the lock writes into its
file which process it is, and touches the file every `EVERY` seconds from a thread: one utime, nothing flushed. A copy
that keeps times (`rsync -a`, a mount) tells a machine elsewhere how long ago that was; on the machine itself the
process is asked for, and where the lock lies the lock alone counts. Clocks of two machines are taken to agree to within
`SILENT` less `EVERY`.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import IO

EVERY = 15.0
"""Seconds from one touch to the next."""
SILENT = 90.0
"""Seconds without one after which a run elsewhere no longer counts as training."""
MOST = 4096
"""Bytes of the file: what has more is no lock of ours."""


def machine() -> str:
    """This machine since it was started: the kernel says, or the network card and the start."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        import uuid

        import psutil

        return f"{uuid.getnode():x}-{psutil.boot_time():.0f}"


class SignOfLife:
    """Touches a lock's file for as long as the lock is held."""

    def __init__(self, file: IO[str], directory: Path) -> None:
        import psutil  # 20 ms, which readers need not wait for

        process = psutil.Process()
        said = {"machine": machine(), "host": os.uname().nodename, "directory": str(directory.resolve()),
                "pid": process.pid, "started": process.create_time()}  # fmt: skip
        self._file, self._over = file, threading.Event()
        file.truncate(0)
        file.write(json.dumps(said))
        file.flush()
        threading.Thread(target=self._touch, name="manyeyes-sign-of-life", daemon=True).start()

    def _touch(self) -> None:
        while not self._over.wait(EVERY):
            with contextlib.suppress(OSError, ValueError):  # a full disk, a file that was closed
                os.utime(self._file.fileno())

    def end(self) -> None:
        """Say that nobody trains any more: a copy must not wait for it."""
        self._over.set()
        with contextlib.suppress(OSError, ValueError):
            self._file.truncate(0)


def trains_elsewhere(lock: Path) -> str:
    """Of a lock that nobody holds here: the host whose process trains the run that this is a copy of; else empty."""
    try:
        found = lock.stat()
        if not 0 < found.st_size <= MOST:
            return ""
        said = json.loads(lock.read_bytes()[:MOST])
        host, pid, started = str(said["host"]), int(said["pid"]), float(said["started"])
        if said["machine"] != machine():
            return host if abs(time.time() - found.st_mtime) < SILENT else ""
        here = said["directory"] == str(lock.parent.resolve())
        return host if not here and _runs(pid, started) else ""
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return ""


def _runs(pid: int, started: float) -> bool:
    """Is this process of this machine alive, and no later one of its number?"""
    import psutil

    try:
        return abs(psutil.Process(pid).create_time() - started) < 1
    except (psutil.Error, ValueError):
        return False
