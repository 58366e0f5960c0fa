"""Several trainings, one after the other, each in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracer.cli import configs
from tracer.cli.output import say
from tracer.config import TrainConfig
from tracer.config.fields import to_dict
from tracer.named_code import NEXT_TOKEN, why_no_clamp, why_no_corpus
from tracer.store import Run, open_run, resolve

STATUSES = {0: "finished", 3: "diverged", 130: "stopped"}
"""By what `tracer train` ends with."""


def train_all(
    config: TrainConfig, preset: str | None, seeds: Sequence[int], settings: Sequence[str], track: Sequence[str],
    overwrite: bool = False, code: configs.Code = configs.NO_CODE, note: str = "", tags: Sequence[str] = (),
) -> str:  # fmt: skip
    """Train each combination; what is finished is left as it is, what was stopped goes on, unless `overwrite`.

    A run of that name with other settings is an error; one that is to be longer goes on. Returns the worst status: a
    run that diverged does not keep the others from being trained, Ctrl-C does.
    """
    ahead = list(configs.many(config, config.run or preset or "run", seeds, settings))  # all are refused, or none is
    for one in ahead:
        if one.data.is_own and (why := why_no_corpus(one.data.corpus)):  # the file of each would name it
            raise ValueError(why)
        for clamp in one.own_clamps:
            if why := why_no_clamp(str(clamp), clamp.code):
                raise ValueError(why)
        if not overwrite:
            if code["build"] and (resolve(one.run or "") / "run.json").exists():
                raise ValueError(f"{resolve(one.run or '')} holds a run: give these another --run, or --overwrite it")
            _refuse_another_loss(_there(one), code["loss"])
    named = [part for word, names in code.items() if names for part in (f"--{word}", *names)]
    begin = [*(["--track", *track] if track else []), *(["--note", note] if note else [])]
    begin += ["--tags", *tags] if tags else []
    statuses = []
    with tempfile.TemporaryDirectory(prefix="manyeyes-") as folder:
        for i, one in enumerate(ahead, 1):
            say(f"{one.run} ({i} of {len(ahead)})")
            path = Path(folder) / f"{i}.json"
            path.write_text(json.dumps({"preset": preset, **to_dict(one)}))
            statuses.append(_train(one, path, begin, named, overwrite))
            if statuses[-1] == "stopped":
                break
    return next((word for word in ("stopped", "diverged") if word in statuses), "finished")


def _there(config: TrainConfig) -> Run | None:
    """The run of that name; ValueError when it was trained with other settings, of which its length is none."""
    directory = resolve(config.run or "")
    if not (directory / "run.json").exists():
        return None
    run = open_run(directory)
    if run.config != replace(config, run=run.config.run, steps=run.config.steps):
        raise ValueError(f"{directory} was trained with other settings: give these another --run, or --overwrite it")
    return run


def _refuse_another_loss(run: Run | None, loss: Sequence[str]) -> None:
    before, now = run and run.meta.get("loss"), next((one for one in loss if one != NEXT_TOKEN), None)
    if run is not None and before != now:
        raise ValueError(
            f"{run.dir} was trained on the loss {before or NEXT_TOKEN}: name it, --loss {before or NEXT_TOKEN}, or "
            f"give these another --run, or --overwrite it"
        )


def _train(config: TrainConfig, path: Path, begin: Sequence[str], code: Sequence[str], overwrite: bool) -> str:
    """`begin`: options of a new run; `code`: those that name code, which a run that goes on needs as well."""
    command = ["train", "--config", str(path), *begin, *code]
    if overwrite:
        command.append("--overwrite")
    elif (before := _there(config)) is not None:
        longer = config.steps > before.config.steps
        if before.status == "diverged" or (before.status == "finished" and not longer):
            say(f"{config.run} is {before.status} already")
            return before.status
        command = ["resume", str(before.dir.resolve()), *(["--steps", str(config.steps)] if longer else []), *code]
        command += ["--corpus", config.data.corpus] if config.data.is_own else []
        command += ["--clamp", *map(str, config.own_clamps)] if config.own_clamps else []
    status = _status_of([sys.executable, "-P", "-m", "tracer", *command])
    if status not in STATUSES:
        raise ValueError(f"{config.run} ended with status {status}: see above")
    return STATUSES[status]


def _status_of(command: Sequence[str]) -> int:
    """How a process ends that is told to stop with this one, finishes its step then, and is waited for.

    Ctrl-C and SIGTERM are passed on as SIGTERM: a terminal tells Ctrl-C to both, and a second one would end it at once,
    as a second one to this process does.
    """

    def end(*_: Any) -> None:
        process.terminate()
        raise KeyboardInterrupt

    process = subprocess.Popen(command)
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        return 130
    finally:
        process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
