"""Models whose code is not in a run: by what they were built, and who may run that.

A run directory names the function that built its model, `build` in run.json, and is never a reason to run it. It runs
where a person names the same function: `--build` on the command line, MANYEYES_BUILD, or `run.model(step, build=...)`.
What its parts are called (`--layout`, `layout=`) is text, and taken from a run as it is.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tracer.config import TrainConfig
from tracer.config.fields import from_dict
from tracer.huggingface.architectures import Layout, layout_of, plain_values
from tracer.named_code import kind_of, name_of, named, remember, remembered

if TYPE_CHECKING:
    import torch
    from torch import nn

Build = str | Callable[..., "nn.Module"]
"""`module:function`, of a module that can be imported from the working directory, or such a function: without
arguments, or of the configuration of a training in our loop."""
SETTING, LAYOUT = "MANYEYES_BUILD", "MANYEYES_LAYOUT"


def allowed(meta: Mapping[str, Any]) -> str | None:
    """What built a run's model, where the person at this process has named it."""
    build = meta.get("build")
    return build if build and build in remembered(SETTING) else None


def layout_for(meta: Mapping[str, Any]) -> Layout | None:
    """Of a run's model: what run.json says, else what the person at this process has said."""
    if (told := meta.get("layout")) is None and (said := os.environ.get(LAYOUT)):
        told = json.loads(said)
    return layout_of(told)


def allow(*builds: str, layout: str | Path | None = None) -> None:
    """Name functions that build models, for this process and those that it starts; and the file of a layout, for runs
    that do not say theirs."""
    if (told := layout_of(layout)) is not None:
        os.environ[LAYOUT] = json.dumps(plain_values(told))
    for build in builds:
        _function(build)
    remember(SETTING, *builds)


def built(build: Build, config: Mapping[str, Any] | None = None) -> nn.Module:
    """A new model, in eval mode on the CPU; random states stay as they were. ValueError where there is none.

    `config`: of a training in our loop, as run.json says it, which `build` is called with.
    """
    given = () if config is None else (from_dict(TrainConfig, dict(config)),)
    return made(build, *given).cpu().eval().requires_grad_(False)


def made(build: Build, *given: TrainConfig, seed: int | None = None) -> nn.Module:
    """What the function makes of what it is `given`, as it is, where torch's dice are those of `seed`, if one is said;
    random states stay as they were. ValueError where it is no module."""
    import torch
    from torch import nn

    make: Any = _function(build) if isinstance(build, str) else build
    try:
        with same_dice():
            if seed is not None:
                torch.manual_seed(seed)
            model = make(*given)
    except Exception as error:  # somebody's code, which raises whatever it runs into
        raise ValueError(f"build={name_of(build)} could not build a model: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"build={name_of(build)} returned {kind_of(model)}, and no torch.nn.Module")
    return model


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
