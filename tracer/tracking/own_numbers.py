"""Numbers that a run has because a person gave them: any name, one number, or one for each layer or head.

A name gets its variable of the trace when its first value is written; the rows before it are NaN. What cannot be kept
is refused in words, once a name, and never ends a training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from tracer.measures import MEASURES, SE
from tracer.store import RunWriter, Variable
from tracer.store.chunks import MOST_ARRAYS
from tracer.tracking.tracking import say

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
AXES = {"step", "layer", "head", "param", "matrix", "prompt", "prompt_tokens", "query_pos", "key_pos", "pos", "depth",
        "target", "told", "tokens"}  # fmt: skip
"""Names of coordinates, and of columns that are kept beside a loss."""
DIMS: dict[int, tuple[str, ...]] = {0: (), 1: ("layer",), 2: ("layer", "head")}
MOST_NAMES, MOST_IN_TRACE = 200, MOST_ARRAYS // 2
"""Of a job, and of a run with all that it has besides: one with more arrays than `MOST_ARRAYS` would not be read."""
LOGGED = "recorder.log"
"""The source of a number that a training loop logs; of any other it is the name of the function that gave it."""
Value = float | Tensor | np.ndarray


def why_no_name(name: Any) -> str:
    """Why no number of one's own can be called this; empty where one can."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return "a name is made of letters, digits and _, begins with no digit and has at most 80 characters"
    if name == "val_loss":
        return "every run has a number of this name: give it to recorder.evaluated(loss)"
    if name in MEASURES or name in AXES or name.endswith(SE):
        return "every run has a number of this name: choose another"
    return ""


def value_of(given: Any) -> Value:
    """One number, or an array of one or two dimensions; a number on a GPU stays there, so that nobody waits for it.

    ValueError for anything else. Numbers that are not finite are numbers.
    """
    if isinstance(given, Tensor):
        given = given.detach()
        if given.ndim == 0 and given.device.type != "cpu":
            return given.float().clone()
        given = given.cpu().double().numpy()
    try:
        x = np.array(given, np.float64)  # of a list of tensors too
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{given!r:.60} is neither a number nor an array of numbers") from error
    if given is None or isinstance(given, str | bytes):
        raise ValueError(f"{given!r:.60} is neither a number nor an array of numbers")
    if x.ndim not in DIMS:
        raise ValueError(f"it has shape {list(x.shape)}: give one number, or an array of [layer] or [layer, head]")
    return float(x) if x.ndim == 0 else x


def attrs(name: str, source: str) -> dict[str, Any]:
    """What the trace says of such a variable."""
    words = " ".join(name.split("_")).strip() or name
    said = "Logged by the training loop" if source == LOGGED else f"Returned by {source}"
    return {"long_name": words[:1].upper() + words[1:], "units": "", "formula": said, "source": source, "probe": "own"}


class OwnNumbers:
    """What was given since the last record, and what is wrong with it."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._refused: set[str] = set()
        self.waiting: dict[str, Value] = {}
        """The latest of each name since the last record."""

    def log(self, numbers: Mapping[str, Any]) -> dict[str, Value]:
        """Keep these for the next record; those that are one number each are returned."""
        good = self.checked(numbers, LOGGED)
        self.waiting |= good
        return {name: value for name, value in good.items() if isinstance(value, float | Tensor)}

    def checked(self, numbers: Any, source: str) -> dict[str, Value]:
        """Those that can be kept; of the others it is said why not, once a name."""
        if not isinstance(numbers, Mapping):
            self.refuse(source, f"it gave {type(numbers).__name__}, not numbers by their names: {{'accuracy': 0.5}}")
            return {}
        good: dict[str, Value] = {}
        for name, given in numbers.items():
            if why := why_no_name(name):
                self.refuse(f"{name!r:.60}", why)
                continue
            if len(self._names | {name}) > MOST_NAMES:
                self.refuse("any more names", f"{MOST_NAMES} are kept of a job")
                continue
            try:
                good[name] = value_of(given)
            except ValueError as error:
                self.refuse(name, str(error))
            else:
                self._names.add(name)
        return good

    def refuse(self, name: str, why: str) -> None:
        """Say it, unless it was said of this name."""
        if name not in self._refused:
            self._refused.add(name)
            say(f"manyeyes does not keep {name}: {why}")

    def take(self, writer: RunWriter | None, row: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """For this row of the trace, what was logged since the last one; without a writer, of rank 1 on, nothing."""
        found, self.waiting = self.waiting, {}
        return {} if writer is None else self.placed(writer, row, found, LOGGED)

    def placed(
        self, writer: RunWriter, row: Mapping[str, Any], values: Mapping[str, Value], source: str
    ) -> dict[str, np.ndarray]:
        """Those that fit into the trace, for a row that holds these already; their variables are made."""
        assert writer.trace is not None
        heads, good, new = writer.trace.heads, {}, {}
        for name, value in values.items():
            x = np.asarray(float(value) if isinstance(value, Tensor) else value, np.float64)
            dims = DIMS[x.ndim]
            there = writer.trace.dims(name)
            if x.ndim and (heads is None or x.shape != heads[: x.ndim]):
                shape = "no layers that are known" if heads is None else f"{heads[0]} layers of {heads[1]} heads"
                self.refuse(name, f"it has shape {list(x.shape)}, and this run has {shape}")
            elif name in row:
                self.refuse(name, "this run has a number of this name already: choose another")
            elif there not in (None, dims):
                what = {0: "one number", 1: "an array of [layer]", 2: "an array of [layer, head]"}
                self.refuse(name, f"it is {what[x.ndim]} here, and {what[len(there or ())]} in the rows before")
            elif there is None and len(writer.trace.names) + len(new) >= MOST_IN_TRACE:
                self.refuse("any more names", "the run holds as many as it can")
            else:
                good[name] = x
                if there is None:
                    new[name] = Variable(dims, x.shape, "float64", attrs(name, source))
        writer.make_room(new)
        return good
