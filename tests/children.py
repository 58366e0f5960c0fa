"""Processes of one test, which end with it whatever becomes of it."""

import subprocess

STARTED: list[subprocess.Popen] = []


def start(*args, **options) -> subprocess.Popen:
    """`subprocess.Popen`, until the end of the test."""
    STARTED.append(subprocess.Popen(*args, **options))
    return STARTED[-1]


def end_all() -> None:
    while STARTED:
        with STARTED.pop() as process:  # which closes its pipes and waits
            process.kill()
