"""The other ways in which the program of tests/watching/test_recorder_endings.py ends."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.watching.test_recorder_endings import ENDINGS, SCRIPT
from tests.watching.test_recorder_endings import test_how_a_program_ended_is_in_its_run as ended
from tracer.store import open_run


@pytest.mark.parametrize("ending", sorted(ENDINGS.keys() - {"kill"}))
def test_how_another_program_ended_is_in_its_run(tmp_path: Path, ending: str) -> None:
    ended(tmp_path, ending)


def test_a_full_disk_stops_the_recording_and_not_the_training(tmp_path: Path, gpt: Callable[..., Any]) -> None:
    """A file system that really fills up; without the right to mount one, a limit on the size of files."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(mount)], capture_output=True)
    script = SCRIPT.format(folder=str(Path(__file__).parents[1]), run=str(mount / "run"), then="if step == 400: break")
    script += "\nprint('trained to the end', recorder.off is not None)"
    command = [sys.executable, "-c", script]
    if done.returncode:
        command = ["bash", "-c", 'ulimit -f 40; trap "" XFSZ; exec "$0" "$@"', *command]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0 and "trained to the end True" in run.stdout, run.stderr
        assert run.stderr.count("manyeyes") == 1 and "Traceback" not in run.stderr, run.stderr
        assert open_run(mount / "run").status in ("interrupted", "stopped")
    finally:
        if not done.returncode:
            subprocess.run(["umount", str(mount)], capture_output=True)
