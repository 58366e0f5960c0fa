"""Several trainings, one after the other, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tracer.cli import configs
from tracer.cli.output import say
from tracer.config import TrainConfig
from tracer.config.fields import to_dict
from tracer.store import open_run, resolve


def train_all(
    config: TrainConfig, preset: str | None, seeds: Sequence[int], settings: Sequence[str], track: Sequence[str],
    overwrite: bool = False,
) -> str:  # fmt: skip
    """Train each combination; what is finished is left as it is, what was stopped goes on, unless `overwrite`.

    Returns the worst status: a run that diverged does not keep the others from being trained, Ctrl-C does.
    """
    ahead = list(configs.many(config, config.run or preset or "run", seeds, settings))  # all are refused, or none is
    statuses = []
    with tempfile.TemporaryDirectory(prefix="manyeyes-") as folder:
        for i, one in enumerate(ahead, 1):
            assert one.run is not None
            say(f"{one.run} ({i} of {len(ahead)})")
            path = Path(folder) / f"{i}.json"
            path.write_text(json.dumps({"preset": preset, **to_dict(one)}))
            statuses.append(_train(one.run, path, track, overwrite))
            if statuses[-1] == "stopped":
                break
    return next((word for word in ("stopped", "diverged") if word in statuses), "finished")


def _train(name: str, path: Path, track: Sequence[str], overwrite: bool) -> str:
    directory = resolve(name)
    command = ["train", "--config", str(path), *(["--track", *track] if track else [])]
    if overwrite:
        command.append("--overwrite")
    elif (directory / "run.json").exists():
        before = open_run(directory)
        if before.status in ("finished", "diverged"):
            say(f"{name} is {before.status} already")
            return before.status
        command = ["resume", str(directory.resolve())]
    done = subprocess.run([sys.executable, "-P", "-m", "tracer", *command])
    if done.returncode not in (0, 3, 130):
        raise ValueError(f"{name} ended with status {done.returncode}: see above")
    return {0: "finished", 3: "diverged", 130: "stopped"}[done.returncode]
