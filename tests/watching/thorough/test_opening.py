"""Models from disk, from memory and from checkpoints, opened as they are; whatever cannot be, said clearly.

What the first tier leaves.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracer
from tests.watching.test_opening import saved  # noqa: F401
from tracer.cli import commands
from tracer.store import open_run


def test_eight_passages_are_read_unless_asked_otherwise(saved: Path, here: Path) -> None:
    default = tracer.open_hf(saved / "gpt2", "default").trace["entropy_se"]
    eight, seven = (tracer.open_hf(saved / "gpt2", f"{n}", rows=n).trace["entropy_se"] for n in (8, 7))
    assert default.equals(eight) and not default.equals(seven)


def test_one_that_was_stopped_goes_on_with_those_left(here: Path, build: Callable[..., Any]) -> None:
    for step in (3, 20, 100):
        build("gpt2").save_pretrained(here / "suite" / f"checkpoint-{step}")

    def stops(done: int, of: int, step: int) -> None:
        raise InterruptedError(step)

    with pytest.raises(InterruptedError, match="3"):
        tracer.open_hf("suite", progress=stops)
    assert open_run("suite").status == "stopped" and open_run("suite").trace["step"].values.tolist() == [3]
    measured: list[int] = []
    run = tracer.open_hf("suite", progress=lambda done, of, step: measured.append(step))
    assert (run.name, run.status, measured) == ("suite", "finished", [20, 100])
    assert run.steps == [3, 20, 100] == run.trace["step"].values.tolist()


def test_the_command_line_opens_a_model(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "tracer", "open", str(saved / "gpt2"), "--run", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "run: GPT2LMHeadModel, 2 layers, into" in done.stdout, done.stderr
    assert open_run(tmp_path / "run").status == "finished"
    with pytest.raises(SystemExit) as exit:
        commands.main(["open", str(tmp_path / "nothing")])
    assert exit.value.code == 2 and capsys.readouterr().err.startswith("error: ")
