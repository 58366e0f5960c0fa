"""Models whose code is not in a run: by what they were built, and who may run that.

A run directory names the function that built its model, `build` in run.json, and is never a reason to run it. It runs
where a person names the same function: `--build` on the command line, MANYEYES_BUILD, or `run.model(step, build=...)`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from tracer.named_code import name_of, named

if TYPE_CHECKING:
    import torch
    from torch import nn

Build = str | Callable[[], "nn.Module"]
"""`module:function`, of a module that can be imported from the working directory, or such a function."""
SETTING = "MANYEYES_BUILD"


def allowed(meta: Mapping[str, Any]) -> str | None:
    """What built a run's model, where the person at this process has named it."""
    build = meta.get("build")
    return build if build and build in os.environ.get(SETTING, "").split(",") else None


def allow(*builds: str) -> None:
    """Name functions that build models, for this process and those that it starts."""
    for build in builds:
        _function(build)
    before = filter(None, os.environ.get(SETTING, "").split(","))
    os.environ[SETTING] = ",".join(dict.fromkeys((*before, *builds)))


def built(build: Build) -> nn.Module:
    """A new model, in eval mode on the CPU; random states stay as they were. ValueError where there is none."""
    from torch import nn

    make = _function(build) if isinstance(build, str) else build
    try:
        with same_dice():
            made = make()
    except Exception as error:  # somebody's code, which raises whatever it runs into
        raise ValueError(f"build={name_of(build)} could not build a model: {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"build={name_of(build)} returned a {type(made).__name__}, and no torch.nn.Module")
    return made.cpu().eval().requires_grad_(False)


def _function(build: str) -> Callable[[], nn.Module]:
    found = named(build, "build")
    if not callable(found):
        raise ValueError(f"build={build!r}: {build.partition(':')[2]} is no function")
    return cast("Callable[[], nn.Module]", found)


@contextmanager
def same_dice(devices: Sequence[torch.device] | None = None) -> Iterator[None]:
    """Random states stay as they were: Python's, numpy's, torch's, and those of these GPUs (None: all)."""
    import numpy as np
    import torch

    dice = random.getstate(), np.random.get_state()  # noqa: NPY002 (what initialisations and data sets draw from)
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(dice[0])
        np.random.set_state(dice[1])  # noqa: NPY002
