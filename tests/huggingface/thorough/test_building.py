"""What takes long of tests/huggingface/test_building.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import tracer
from tests.huggingface.test_building import BUILD, loop  # noqa: F401


def test_once_a_person_has_named_it_the_run_is_like_any_other(loop: Path) -> None:
    """In a process of its own, as somebody types it, whose working directory is where the module lies."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "tracer", "sweep", "theirs", "--build", BUILD, "--modes", "zero", "--steps", "6",
         "--json"], capture_output=True, text=True, cwd=loop, env=env, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == [6] and (loop / "was-run").exists()
    assert tracer.open_run("theirs").effects.sizes["head"] == 4
