"""What tells, without reading it, that a run.json has changed, come or gone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from tracer.store.meta import SETTLED

Stamp = tuple[object, ...]


def of_run(directory: Path) -> Stamp | None:
    """Of one run; None while its run.json is so young that another change might not show, and where there is none."""
    return _of_file(f"{directory}/run.json")


def of_folders(roots: Iterable[Path]) -> Stamp | None:
    """Of all runs below some folders; None while one of them is so young."""
    found: list[object] = [os.getcwd()]
    for root in roots:
        try:
            names = sorted(os.listdir(root))
        except OSError:
            continue
        for name in names:
            path = f"{root}/{name}/run.json"
            if (stamp := _of_file(path)) is not None:
                found.append(stamp)
            elif os.path.lexists(path):
                return None
    return tuple(found)


def _of_file(path: str) -> Stamp | None:
    try:
        one = os.stat(path)
    except OSError:
        return None
    if time.time_ns() - max(one.st_mtime_ns, one.st_ctime_ns) < SETTLED:
        return None
    return path, one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns
