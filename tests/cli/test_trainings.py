"""Several trainings: what is there already, and how they are stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests import children
from tests.tiers import quick
from tests.trainings import tiny
from tests.waiting import wait
from tracer.cli import trainings
from tracer.training import loop

TRAINING = """
import time
from tracer.training.interrupts import interrupts
with interrupts() as asked:
    print("trains", flush=True)
    end = time.monotonic() + 20
    while not asked() and time.monotonic() < end: time.sleep(0.01)
    time.sleep(1)  # the rest of a step
    print("saved" if asked() else "trained to its end", flush=True)
"""
SWEEP = "import sys; from tracer.cli import trainings; print(trainings._status_of([sys.executable, '-c', sys.argv[1]]))"


STOPS: dict[str, tuple[Callable[[int, int], None], int]] = {
    "Ctrl-C in a terminal": (os.killpg, signal.SIGINT), "kill -INT": (os.kill, signal.SIGINT),
    "a scheduler": (os.kill, signal.SIGTERM),
}  # fmt: skip


def hears_sigterm(pid: int) -> bool:
    """Does a process have a handler of its own?"""
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("how", quick(STOPS, ("Ctrl-C in a terminal",)))
def test_a_training_that_is_stopped_finishes_its_step(how: str) -> None:
    tell, number = STOPS[how]
    sweep = children.start([sys.executable, "-c", SWEEP, TRAINING], text=True, stdout=subprocess.PIPE,
                           start_new_session=True)  # fmt: skip
    assert sweep.stdout is not None and sweep.stdout.readline() == "trains\n"
    wait(lambda: hears_sigterm(sweep.pid), 60)
    tell(sweep.pid, number)
    assert sweep.stdout.read() == "saved\n130\n"  # until both have ended


def test_what_is_there_is_left_goes_on_or_is_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, commands = tiny(tmp_path / "x", steps=2), []
    monkeypatch.setattr(trainings, "_status_of", lambda command: commands.append(command[4:]) or 0)
    directory = loop.train(replace(config, run=f"{config.run}-0"), quiet=True).dir
    again = lambda config, **options: trainings.train_all(config, None, (0,), (), (), **options)  # noqa: E731
    assert again(config) == "finished" and not commands
    with pytest.raises(ValueError, match="x-0 was trained with other settings"):
        again(replace(config, optim=replace(config.optim, lr=0.5)))
    assert again(replace(config, steps=4)) == "finished"
    assert commands == [["resume", str(directory), "--steps", "4"]]
    again(replace(config, data=replace(config.data, period_max=20)), overwrite=True)
    assert commands[1][0] == "train" and commands[1][-1] == "--overwrite"
