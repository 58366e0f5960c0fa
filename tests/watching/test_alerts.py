"""What goes wrong is told while it does, and may stop the job."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Trainer, TrainingArguments

import tracer
from tests.watching.loops import batches
from tracer.cli.watch_run import watch_run
from tracer.store import open_run


def sharp(gpt: Callable[..., Any]) -> Any:
    """Its scores are in the thousands."""
    model = gpt(dropout=0.0)
    with torch.no_grad():
        model.h[0].attn.c_attn.weight[:48] *= 200
    return model


@pytest.mark.parametrize("asked", ["stop", "a function", "watch only"])
def test_a_loop_is_asked_to_stop(here: Path, gpt: Callable[..., Any], asked: str) -> None:
    told: list[Any] = []
    then: Any = {"stop": "stop", "a function": lambda one: told.append(one) or "stop", "watch only": told.append}[asked]
    model = sharp(gpt)
    steps = 0
    with tracer.watch(model, run="r", every=1, on_finding=then) as recorder:
        for batch in batches(12):
            loss = model(batch[:, :-1], batch[:, 1:])[1]
            loss.backward()
            recorder.step(loss)
            steps += 1
            if recorder.should_stop:
                break
        assert recorder.off is None
    run = open_run("r")
    assert (steps < 12 and run.status == "stopped") == (asked != "watch only")
    kinds = [json.loads(line)["kind"] for line in (run.dir / "findings.jsonl").read_text().splitlines()]
    assert kinds == list(dict.fromkeys(kinds)) and {"one-hot", "scores"} & set(kinds)
    assert asked == "stop" or [one.kind for one in told] == kinds


@tracer.rule(text="Found at each step.")
def always(trace: Any) -> Any:
    yield int(trace.step[0]), [], "as ever"


@tracer.rule
def broken(trace: Any) -> Any:
    yield 0, [], trace.nowhere


def test_rules_of_ones_own_stop_a_loop_and_never_its_recording(here: Path, gpt: Callable[..., Any]) -> None:
    model, told = gpt(), list[Any]()
    with (
        pytest.warns(RuntimeWarning, match="the rule broken is left out from here on") as said,
        tracer.watch(model, run="r", every=1, on_finding=lambda one: told.append(one) or "stop",
                     rules=[broken, always]) as recorder,
    ):  # fmt: skip
        for batch in batches(4):
            loss = model(batch[:, :-1], batch[:, 1:])[1]
            loss.backward()
            recorder.step(loss)
    assert len(said) == 1 and recorder.off is None and recorder.should_stop
    assert [one.kind for one in told].count("always") == 1 and open_run("r").trace.sizes["step"] == 5


def test_trainer_stops_with_a_checkpoint(here: Path, build: Callable[..., Any]) -> None:
    model = build("gpt2")
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight[:, :48] *= 200
    args = TrainingArguments(
        "out", max_steps=30, per_device_train_batch_size=4, report_to=[], save_strategy="no", logging_strategy="no",
        disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    rows = torch.randint(2, 50, (32, 12), generator=torch.Generator().manual_seed(0))
    recorded: Any = tracer.TrainerCallback("hf", every=1, on_finding="stop")
    data: Any = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model, args, train_dataset=data, callbacks=[recorded])
    trainer.train()
    step = trainer.state.global_step
    assert step < 30 and open_run("checkpoints/hf").status == "stopped" and Path("out", f"checkpoint-{step}").is_dir()


def test_a_command_hears_of_each_finding(
    here: Path, gpt: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    model = sharp(gpt)
    with tracer.watch(model, run="r", every=1) as recorder:
        for batch in batches(5):
            recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
    script = here / "hear.py"
    script.write_text(
        "import os, sys; open('heard', 'a').write(os.environ['MANYEYES_KIND'] + sys.stdin.read() + '\\n')"
    )
    assert watch_run("r", on_finding=f"{sys.executable} {script}") == "finished"
    heard = Path("heard").read_text().splitlines()
    said = capsys.readouterr().out.splitlines()
    assert len(heard) == len(said) > 0 and said[0].startswith("r: bad: ")
    for line in heard:
        fact = json.loads(line[line.index("{") :])
        assert line.startswith(fact["kind"]) and np.isfinite(fact["step"])
    assert subprocess.run([sys.executable, "-m", "tracer", "watch-run", "--help"], capture_output=True).returncode == 0


def test_an_error_of_on_finding_leaves_no_run_open(here: Path, gpt: Callable[..., Any]) -> None:
    def then(finding: Any) -> None:
        raise KeyError(finding.kind)

    model = gpt()
    recorder = tracer.watch(model, run="r", every=100, on_finding=then)
    model(torch.zeros(2, 5, dtype=torch.long))
    with pytest.warns(RuntimeWarning, match="not finite at step"):
        recorder.step(float("nan"))
    assert open_run("r").status == "diverged" and not open_run("r").live
