"""Where a run came from: versions, git state, device."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def provenance() -> dict[str, Any]:
    """Versions of what computes, the git commit of the working directory, the time and the machine's kind."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "git": _git(),
        "platform": platform.platform(),
        "argv": sys.argv[1:],
    }


def process() -> dict[str, Any]:
    """The process that trains, so that it can be asked to stop: its id, and the machine on which it has that id."""
    return {"pid": os.getpid(), "host": socket.gethostname()}


_PACKAGES = ("manyeyes", "torch", "transformer-lens", "accelerate", "tokenizers", "zarr")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git() -> dict[str, Any] | None:
    def ask(*args: str) -> str | None:
        try:
            done = subprocess.run(["git", *args], capture_output=True, text=True, timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    return None if commit is None else {"commit": commit, "dirty": bool(ask("status", "--porcelain", "-uno"))}
