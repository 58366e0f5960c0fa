"""Libraries that are imported when they are first used: those of loaders of data."""

import subprocess
import sys

from tests.model.test_deferring import NAMES


def test_its_loaders_of_data_find_their_libraries_when_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
