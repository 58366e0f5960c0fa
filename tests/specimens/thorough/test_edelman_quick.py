"""`tracer reproduce edelman --quick`, as a person starts it, in an empty folder."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def worked_out(weights: Path) -> dict[str, float]:
    """By `independent.py`, which can import nothing of ours."""
    script = [sys.executable, "-I", Path(__file__).with_name("independent.py"), weights]
    return json.loads(subprocess.run(script, capture_output=True, text=True, check=True).stdout)


def inside(figure: float, of: dict[str, Any]) -> bool:
    low, high = of["within"]
    return (low is None or figure >= low) and (high is None or figure <= high)


@pytest.mark.slow
def test_the_first_paper_is_trained_and_judged(tmp_path: Path) -> None:
    def reproduce(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tracer", "reproduce", "edelman", "--quick", *args]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=600)

    done = reproduce("--json", "--toys", "toys")
    told = json.loads(done.stdout)
    assert done.returncode == told["status"] in (1, 3), done.stderr
    assert [one.name for one in (tmp_path / "checkpoints").iterdir()] == ["edelman-dirichlet"]
    claims = {one["claim"]: one for one in told["claims"]}
    (ends,) = [one for text, one in claims.items() if text.startswith("it ends at the bigram strategy")]
    assert ends["verdict"] == "holds" and 0 < ends["figures"]["0"] < 0.015 and ends["control"]["figures"]["0"] > 0.7
    lacking = [one["verdict"] for one in claims.values() if set(one["needs"]) != {"dirichlet"}]
    assert len(lacking) == 7 and set(lacking) == {"not tested"}
    (without,) = [one for text, one in claims.items() if text.startswith("L0H0 mean-ablated at the end")]
    found = worked_out(tmp_path / "toys" / "edelman-dirichlet" / "manyeyes" / "model.safetensors")
    for one, name, apart in (
        (ends, "excess", 0.002), (ends["control"], "shuffled", 0.1),
        (without, "without the first", 0.02), (without["control"], "without both", 0.02),
    ):  # fmt: skip
        figure, again = one["figures"]["0"], found[name]
        assert again == pytest.approx(figure, abs=apart) and inside(again, one) == inside(figure, one), name
    kept = (tmp_path / "checkpoints" / "edelman-dirichlet" / "run.json").read_bytes()
    again = reproduce()
    assert again.returncode == done.returncode and "Seed 0; 1 training," in again.stdout
    assert (tmp_path / "checkpoints" / "edelman-dirichlet" / "run.json").read_bytes() == kept


def test_an_installed_package_has_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a wheel, unpacked; from a folder that is not ours."""
    from hatchling.build import build_wheel

    monkeypatch.chdir(ROOT)
    wheel = tmp_path / build_wheel(str(tmp_path))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    code = "import tracer.specimens.paper_folder as p; print(p.shipped()['edelman'], p.load('edelman').paper.title)"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=env)
    folder = tmp_path / "site" / "tracer" / "papers" / "edelman"
    assert done.stdout == f"{folder} Counting before matching: statistical induction heads\n", done.stderr
