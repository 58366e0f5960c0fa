"""Killed at a file operation, or at any moment: what is left opens, and goes on to the end that an undisturbed run has.

A process counts its own file operations below a folder (opening to write, renaming, removing, making folders, flushing)
and sends itself SIGKILL before the one that it was told.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.attacks.forks import Forks
from tests.attacks.table import Tally
from tests.trainings import tiny
from tracer.config import RecordConfig, TrainConfig
from tracer.files import disk as files
from tracer.store import Run, open_run
from tracer.store.check import check

HERE = "tests.attacks.kills"
WRITING = os.O_WRONLY | os.O_RDWR
CLOCKS = ("step_ms",)
"""Measured in time, so different in every run."""
AWAY = "moved"
"""What a run is called that was moved while it was written."""
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")


def config(folder: Path) -> TrainConfig:
    record = RecordConfig(every=2, snapshot_every=3, state_every=4, log_every=2, val_rows=2, repeat_rows=2, icl_rows=2)
    made = tiny(folder / "run", steps=6, record=record)
    return replace(made, model=replace(made.model, d_model=16), optim=replace(made.optim, batch_size=2))


def train(folder: Path) -> None:
    from tracer.training import loop, session

    session.CHECKPOINT_SECONDS = 0.0  # a resume point as often as recording may
    loop.train(config(folder), quiet=True)


def resume(folder: Path) -> None:
    from tracer.training import loop, session

    session.CHECKPOINT_SECONDS = 0.0
    loop.resume(folder / "run", steps=10, quiet=True)


def fork(folder: Path) -> None:
    from tracer.training import loop

    loop.fork(folder / "parent", 3, replace(config(folder), steps=8), quiet=True)


def sweep(folder: Path) -> None:
    from tracer.analysis.run_sweep import sweep_run

    sweep_run(open_run(folder / "run"), ("zero",))


def opened(folder: Path) -> None:
    from tracer.watching.opening import open_hf

    open_hf(folder / "suite", str(folder / "run"), rows=2)


def watched(folder: Path) -> None:
    import torch

    import tracer
    from tests.dashboard.conftest import gpt

    model, ids = gpt(), torch.randint(60, (8, 24), generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    with tracer.watch(model, run=folder / "run", every=1) as recorder:
        for _ in range(4):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step(loss)


def again(folder: Path) -> None:
    """What a person does who finds a training dead: go on, or start again where there is nothing to go on from."""
    run = _run(folder)
    if run is not None and run.resume_step() is not None:
        from tracer.training import loop

        if run.status != "finished" or run.config.steps < run.meta["config"]["steps"]:
            loop.resume(run.dir, quiet=True)
    elif (folder / "parent").exists():
        fork(folder)
    else:
        train(folder)


def go_on(folder: Path) -> None:
    run = open_run(folder / "run")
    if run.status != "finished" or run.config.steps < 10:
        resume(folder)


BEGUN: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "train": (train, "", "again"), "resume": (resume, "train", "go_on"), "fork": (fork, "parent", "again"),
    "sweep": (sweep, "train", "sweep"), "open": (opened, "suite", "opened"), "watch": (watched, "", ""),
}  # fmt: skip
"""What is killed, what it begins with, and what goes on afterwards."""


def counted(command: str, folder: str, at: int, moves: bool = False) -> None:
    """Run a command, killed before its file operation `at`; 0: count them into operations.txt. `moves`: it is not
    killed, its run is moved away."""
    root, seen = os.path.realpath(folder), [0]

    def count() -> None:
        seen[0] += 1
        if seen[0] == at and not moves:
            os.kill(os.getpid(), signal.SIGKILL)
        if seen[0] == at and os.path.exists(f"{root}/run"):
            os.rename(f"{root}/run", f"{root}/{AWAY}")

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & WRITING):
            name = args[0] if isinstance(args[0], str) else os.fsdecode(args[0]) if isinstance(args[0], bytes) else ""
            if name.startswith(root) and not name.endswith("operations.txt"):
                count()

    flush = files._flush

    def flushed(path: Path) -> None:
        count()
        flush(path)

    files._flush = flushed
    sys.addaudithook(heard)
    with contextlib.suppress(OSError) if moves else contextlib.nullcontext():  # which the command line says in words
        BEGUN[command][0](Path(root))
    if not at:
        (Path(root) / "operations.txt").write_text(str(seen[0]))


def recovered(command: str, folder: str) -> None:
    """Look at what a kill left, go on, and look again."""
    place, then = Path(folder), BEGUN[command][2]
    whole(place, live=True)
    if then:
        globals()[then](place)
        whole(place)
        left = [path.name for path in (place / "run").rglob("*.partial")]
        assert not left, f"left behind: {left}"


def begin(kind: str, folder: str) -> None:
    """What a command needs to begin with."""
    import torch

    place = Path(folder)
    if kind in ("train", "parent", "swept"):
        train(place)
    if kind == "swept":
        sweep(place)
    if kind == "parent":
        (place / "run").rename(place / "parent")
    if kind == "suite":
        from tests.dashboard.conftest import gpt

        for step in (1, 2):
            model = gpt()
            with torch.no_grad():
                for weight in model.parameters():
                    weight.mul_(1 + step / 10)
            model.save_pretrained(place / "suite" / f"checkpoint-{step}")


def _run(folder: Path) -> Run | None:
    try:
        return open_run(folder / "run")
    except ValueError:
        assert not (folder / "run" / "run.json").exists(), "a run.json that cannot be read"
        return None


def whole(folder: Path, live: bool = False) -> None:
    """No part of the run is damaged; before anything was committed there may be none."""
    run = _run(folder)
    if run is None:
        return
    if live and not (run.dir / "trace.zarr" / "step" / "c").exists():
        return
    try:
        rows = run.trace
    except ValueError as error:
        assert live and "not laid out yet" in str(error), error
        return
    steps = rows["step"].values
    assert (np.diff(steps) > 0).all(), steps
    found = check(run.dir)
    assert not found.damaged, found


def facts(folder: Path) -> dict[str, Any]:
    """All that two runs of the same thing have in common."""
    run = open_run(folder / "run")
    trace = run.trace
    told: dict[str, Any] = {"status": run.status, "steps": run.steps}
    told |= {str(name): trace[name].values.tobytes() for name in trace.variables if name not in CLOCKS}
    for name, rows in (("log", run.log()), ("samples", run.samples())):
        told[name] = [json.dumps({k: v for k, v in row.items() if k not in CLOCKS}) for row in rows]
    for path in (*(run.dir / "snapshots").glob("*.safetensors"), *(run.dir / "states").glob("*.safetensors")):
        told[f"{path.parent.name} {path.name}"] = path.read_bytes()
    if (run.dir / "effects.zarr").exists():
        told["effects"] = run.effects["effect"].values.tobytes()
    return told


def attack(forks: Forks, folder: Path, command: str, n: int, seed: int = 0) -> Tally:
    """Kill `n` times at operations spread over all that there are."""
    tally, base = Tally(f"kill at a file operation: {command}"), folder / f"{command}-base"
    base.mkdir(parents=True)
    if start := BEGUN[command][1]:
        made = forks.call(f"{HERE}:begin", start, base)
        assert made.clean, made.output
    whole_run = folder / f"{command}-whole"
    shutil.copytree(base, whole_run)
    made = forks.call(f"{HERE}:counted", command, whole_run, 0)
    assert made.clean, made.output
    count = int((whole_run / "operations.txt").read_text())
    expected = facts(whole_run)
    draw = random.Random(seed)
    for i in range(n):
        at = 1 + (i * count + draw.randrange(count)) // n
        _one(forks, tally, folder, base, command, f"operation {at} of {count}", expected, at=at)
    return tally


def attack_at_random(forks: Forks, folder: Path, n: int, seed: int = 0) -> Tally:
    """Kill `n` times, at any moment of a training."""
    tally, base, draw = Tally("kill at a random moment: train"), folder / "random-base", random.Random(seed)
    base.mkdir(parents=True)
    whole_run = folder / "random-whole"
    whole_run.mkdir()
    made = forks.call(f"{HERE}:counted", "train", whole_run, 0)
    assert made.clean, made.output
    expected = facts(whole_run)
    for _ in range(n):
        after = draw.uniform(0.02, 1.2 * made.seconds)
        _one(forks, tally, folder, base, "train", f"after {after:.3f} s", expected, after=after)
    return tally


def attack_by_moving(forks: Forks, folder: Path, n: int, seed: int = 0) -> Tally:
    """Move the run away `n` times while it trains: nothing is made where it was, and it goes on once it is back."""
    tally, draw = Tally("run moved while it trains"), random.Random(seed)
    base, whole_run = folder / "move-base", folder / "move-whole"
    base.mkdir(parents=True)
    whole_run.mkdir()
    made = forks.call(f"{HERE}:counted", "train", whole_run, 0)
    assert made.clean, made.output
    count, expected = int((whole_run / "operations.txt").read_text()), facts(whole_run)
    for i in range(n):
        at = 1 + (i * count + draw.randrange(count)) // n
        _one(forks, tally, folder, base, "train", f"operation {at} of {count}", expected, at=at, moves=True)
    return tally


def _one(
    forks: Forks, tally: Tally, folder: Path, base: Path, command: str, name: str, expected: dict[str, Any],
    at: int = -1, after: float = 300.0, moves: bool = False,
) -> None:  # fmt: skip
    place = folder / "case"
    shutil.copytree(base, place)
    try:
        killed = forks.call(f"{HERE}:counted", command, place, at, moves, timeout=after)
        problems = []
        if moves and (place / AWAY).exists():
            if (place / "run").exists():
                problems.append(f"made again where it was: {[path.name for path in (place / 'run').rglob('*')]}")
                shutil.rmtree(place / "run")
            (place / AWAY).rename(place / "run")
        if killed.status not in (0, -signal.SIGKILL):
            problems.append(f"ended with {killed.status}: {killed.output[-1500:]}")
        then = forks.call(f"{HERE}:recovered", command, place, timeout=300)
        if not then.clean:
            problems.append(f"did not go on: {then.output[-1500:]}")
        elif BEGUN[command][2]:
            found = facts(place)
            problems += [f"{key} differs" for key in expected if found.get(key) != expected[key]]
        tally.case(name, *problems, seconds=then.seconds)
    finally:
        shutil.rmtree(place)
