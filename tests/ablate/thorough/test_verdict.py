"""What takes long of tests/ablate/test_verdict.py."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from tests.ablate.test_verdict import run  # noqa: F401
from tracer.ablate import verdict
from tracer.store import Run


def test_the_snippet_computes_the_card_again(run: Run) -> None:
    found = verdict(run, 1, 0, sequences=8)
    done = subprocess.run(
        [sys.executable, "-c", found.snippet], capture_output=True, text=True, cwd=run.dir,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[3])}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(found)
    assert "it's one at step 30 is not an induction head" in found.headline and "step=30" in found.snippet
