"""What a process holds open: how many files, and a stdout that somebody may have stopped reading."""

from __future__ import annotations

import os
import resource
import sys

WANTED = 8192
"""macOS begins with 256, which a few dozen sessions of the dashboard use up: each keeps three for two minutes."""


def raise_descriptors() -> int:
    """Raise this process's soft limit as far as WANTED and the hard limit let it; the limit that then holds.

    What it starts has the same limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # some systems allow less than they say
        return soft
    return wanted


def silence() -> None:
    """Nobody reads what is printed any more (`| head`): print it nowhere, and go on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
