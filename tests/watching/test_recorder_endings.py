"""However a recorded training ends, its run says how."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracer
from tests import children
from tests.waiting import wait
from tracer.store import open_run
from tracer.store.layout import is_locked

SCRIPT = """
import sys, time, torch
sys.path.insert(0, {folder!r})
import tracer
from conftest import GPT
model = GPT()
optimizer = torch.optim.AdamW(model.parameters())
recorder = tracer.watch(model, run={run!r}, every=1)
for step in range(100000):
    ids = torch.randint(0, 20, (4, 17))
    loss = model(ids[:, :-1], ids[:, 1:])[1]
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    recorder.step(loss)
    {then}
"""
ENDINGS = {
    "exception": ("if step == 5: raise RuntimeError('the data ended')", "stopped", "RuntimeError: the data ended"),
    "end of the program": ("if step == 5: break", "finished", None),
    "kill": ("", "interrupted", None),
}


@pytest.mark.parametrize("ending", ["kill"])
def test_how_a_program_ended_is_in_its_run(tmp_path: Path, ending: str) -> None:
    then, status, error = ENDINGS[ending]
    run = str(tmp_path / "run")
    script = SCRIPT.format(folder=str(Path(__file__).parent), run=run, then=then)
    process = children.start([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    if ending == "kill":

        def began() -> bool:
            with contextlib.suppress(ValueError, OSError):
                return len(open_run(run).trace["step"]) >= 3
            return False

        wait(began)
        assert open_run(run).status == "training" and open_run(run).live
        os.kill(process.pid, signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    found = open_run(run)
    assert found.status == status and found.meta.get("error") == error, said
    assert "manyeyes" not in said and np.isfinite(found.trace["entropy"]).all()
    if ending != "kill":
        assert found.trace["step"].values.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_loop_that_raises_inside_a_with_block(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    with pytest.raises(KeyError, match="label"), tracer.watch(model, run="r") as recorder:
        model(torch.zeros(2, 5, dtype=torch.long))
        recorder.step(0.5)
        raise KeyError("label")
    assert open_run("r").status == "stopped" and open_run("r").meta["error"] == "KeyError: 'label'"


def test_a_recorder_that_was_closed_says_nothing_more(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    with tracer.watch(model, run="r") as recorder:
        model(torch.zeros(2, 5, dtype=torch.long))
    recorder.step(0.5)
    recorder.evaluated(0.5)
    recorder.close()
    assert recorder.off is None and open_run("r").status == "finished"


def test_a_model_that_is_recorded_anew_is_recorded_once(here: Path, gpt: Callable[..., Any]) -> None:
    model, ids = gpt(), torch.zeros(2, 5, dtype=torch.long)
    recorder = tracer.watch(model, run="r", every=1)
    model(ids)
    recorder.step(0.5)  # and then the loop is interrupted
    with pytest.raises(ValueError, match="nobody"):
        tracer.watch(model, run="r", track="nobody")
    assert open_run("r").status == "training"
    with pytest.warns(RuntimeWarning, match="in r-2 from now on: r ends here"):
        recorder = tracer.watch(model, run="r", every=1)
    model(ids)
    recorder.step(0.5)
    assert open_run("r").status == "stopped" and open_run("r").meta["error"].endswith("recorded anew")
    recorder.close()
    assert open_run("r-2").status == "finished"


@pytest.mark.parametrize("fails", ["taking what is left", "closing the run"])
def test_an_end_that_fails_lets_go_of_everything(
    here: Path, gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    left: list[bool] = []
    others = threading.enumerate()  # of recordings that tests before this one left open
    recorder = tracer.watch(gpt(), run="r", every=1)
    recorder.model(torch.zeros(2, 5, dtype=torch.long))
    recorder.step(0.5)
    assert recorder.probing is not None and recorder.probing.writer is not None and is_locked(recorder.dir)
    at = (recorder._every, "take") if fails == "taking what is left" else (recorder.probing.writer.updates, "close")
    monkeypatch.setattr(*at, lambda: 1 / 0)
    monkeypatch.setattr(recorder.ranks, "leave", lambda: left.append(True))
    with pytest.warns(RuntimeWarning, match="manyeyes"):
        recorder.close()
    assert left == [True] and not is_locked(recorder.dir)
    assert not [one for one in threading.enumerate() if one not in others and one.name.startswith("manyeyes-writer")]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("h.1.attn.c_attn.weight", "first in h.1.attn.c_attn.weight (layer 1, head 0, W_Q)"),
        ("lm_head.weight", "first in wte.weight"),
    ],
)
def test_divergence_is_told_by_its_layer(here: Path, gpt: Callable[..., Any], bad: str, says: str) -> None:
    model, ids = gpt(), torch.zeros(2, 5, dtype=torch.long)
    recorder = tracer.watch(model, run="r", every=1)
    model(ids)
    recorder.step(0.5)
    with torch.no_grad():
        model.get_parameter(bad)[1 if bad == "lm_head.weight" else 0, 0] = float("nan")
    with pytest.warns(RuntimeWarning, match=r"not finite at step [12], first in") as said:
        model(ids)
        recorder.step(float("nan") if bad == "lm_head.weight" else 0.5)
        for _ in range(3):
            model(ids)
            recorder.step(0.5)
        recorder.close()
    run = open_run("r")
    assert len(said) == 1 and run.status == "diverged" and not run.live, run.meta
    assert says in run.meta["divergence"]["text"]
