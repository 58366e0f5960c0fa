"""A run of a series, of the tutorials' or of a paper's: found where it is, gone on with, or trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tracer.config import TrainConfig
from tracer.store import Run, open_run

DONE = ("finished", "diverged")
MEND = "move it away, or choose another seed"


def there(config: TrainConfig, directory: Path) -> Run | None:
    """The run of that directory; ValueError where it was trained with other settings."""
    if not (directory / "run.json").exists():
        return None
    run = open_run(directory)
    if run.config != replace(config, run=run.config.run):
        raise ValueError(f"{directory} was trained with other settings: {MEND}")
    return run


def trained(
    config: TrainConfig, directory: Path, run: Run | None, *, quiet: bool, preset: str | None = None, **code: Any
) -> Run:
    """The run at its end, or where it was stopped: on from its state, else from the beginning; `code` as of `train`."""
    from tracer.training.loop import resume
    from tracer.watching.train import train

    if run is not None and run.resume_step() is not None:
        return resume(directory, quiet=quiet, **code)
    return train(config, preset, quiet, overwrite=run is not None, **code)
