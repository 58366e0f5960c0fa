"""Types: pyright runs beside the other tests, in one thread; with two it takes the time of both cores twice over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent


FIRST = ("tracer", "dashboard")
LEFT = ("papers", "tests", "docs", "benchmarks", "tracer/tracking", "tracer/watching", "tracer/store")
"""What the first tier does not look at, and what needs packages that are not installed for it."""


def test_types(pytestconfig: pytest.Config) -> None:
    """Of what is installed; in the second tier of all that pyproject.toml names, or of what the first one left."""
    parts = FIRST if not tiers.THOROUGH else LEFT if pytestconfig.getoption("after_first") else ()
    command = [str(Path(sys.executable).with_name("pyright")), *parts]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
