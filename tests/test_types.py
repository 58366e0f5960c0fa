"""Types: pyright runs beside the other tests, in one thread; with two it takes the time of both cores twice over."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent


def test_types() -> None:
    """Of what is installed; in the second tier of all that pyproject.toml names."""
    command = [str(Path(sys.executable).with_name("pyright")), *(() if tiers.THOROUGH else ("tracer", "dashboard"))]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
