"""`tracer reproduce edelman --quick`, as a person starts it, in an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_first_paper_is_trained_and_judged(tmp_path: Path) -> None:
    def reproduce(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tracer", "reproduce", "edelman", "--quick", *args]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=600)

    done = reproduce("--json")
    told = json.loads(done.stdout)
    assert done.returncode == told["status"] in (1, 3), done.stderr
    assert [one.name for one in (tmp_path / "checkpoints").iterdir()] == ["edelman-dirichlet"]
    claims = {one["claim"]: one for one in told["claims"]}
    (ends,) = [one for text, one in claims.items() if text.startswith("it ends at the bigram strategy")]
    assert ends["verdict"] == "holds" and 0 < ends["figures"]["0"] < 0.015 and ends["control"]["figures"]["0"] > 0.7
    lacking = [one["verdict"] for one in claims.values() if set(one["needs"]) != {"dirichlet"}]
    assert len(lacking) == 7 and set(lacking) == {"not tested"}
    kept = (tmp_path / "checkpoints" / "edelman-dirichlet" / "run.json").read_bytes()
    again = reproduce()
    assert again.returncode == done.returncode and "Seed 0; 1 training," in again.stdout
    assert (tmp_path / "checkpoints" / "edelman-dirichlet" / "run.json").read_bytes() == kept
