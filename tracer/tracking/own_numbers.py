"""Numbers that a run has because a person gave them: any name, one number, or one for each layer or head.

A name gets its variable of the trace when its first value is written; the rows before it are NaN. What cannot be kept
is refused in words, once a name, and never ends a training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from tracer.measures.described import out_of_range
from tracer.measures.own_names import why_no_name
from tracer.store import RunWriter, Variable
from tracer.store.chunks import MOST_ARRAYS
from tracer.store.trace import TraceWriter
from tracer.tracking.tracking import say

DIMS: dict[int, tuple[str, ...]] = {0: (), 1: ("layer",), 2: ("layer", "head")}
KINDS = {0: "one number", 1: "an array of [layer]", 2: "an array of [layer, head]"}
MOST_NAMES, MOST_IN_TRACE = 200, MOST_ARRAYS // 2
"""Of a job, and of a run with all that it has besides: one with more arrays than `MOST_ARRAYS` would not be read."""
EVALUATED = {"val_loss": "every run has a number of this name: give it to recorder.evaluated(loss)"}
LOGGED = "recorder.log"
"""The source of a number that a training loop logs; of any other it is the name of the function that gave it."""
Value = float | Tensor | np.ndarray


@dataclass(frozen=True)
class OwnNumber:
    """A number, or an array of them, and what is said of it."""

    value: Any
    label: str
    unit: str
    range: tuple[float | None, float | None]

    def __float__(self) -> float:
        return float(self.value)


def scalar(
    value: Any, *, label: str = "", unit: str = "", range: tuple[float | None, float | None] = (None, None)
) -> Any:
    """A number of one's own with what pages say of it, for `recorder.log` and for what functions of `scalars=` return.

        recorder.log({"accuracy": tracer.scalar(right.mean(), label="Right answers", unit="share", range=(0, 1))})

    `value`: one number, or an array of [layer] or [layer, head]. `label`: its title, else its name. `unit`: numbers of
    one unit are drawn on one chart. `range`: the smallest and the largest possible value, None for no end. What is said
    when a run gets the name stays. What comes back holds the number as `value`; `float` gives it, too.
    """
    return OwnNumber(value, str(label), str(unit), range)


def value_of(given: Any) -> Value:
    """One number, or an array of one or two dimensions; a number on a GPU stays there, so that nobody waits for it.

    ValueError for anything else. Numbers that are not finite are numbers.
    """
    if isinstance(given, Tensor):
        given = given.detach()
        if given.ndim == 0 and given.device.type != "cpu":
            return (given.float() if given.device.type == "mps" else given.double()).clone()
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


def attrs(name: str, source: str, own: OwnNumber | None = None) -> dict[str, Any]:
    """What the trace says of such a variable; `own`: what its author says."""
    words = " ".join(name.split("_")).strip() or name
    said = "Logged by the training loop" if source == LOGGED else f"Returned by {source}"
    label, unit, ends = (own.label, own.unit, own.range) if own else ("", "", (None, None))
    return {
        "long_name": label or words[:1].upper() + words[1:], "units": unit, "formula": said, "source": source,
        "probe": "own",
    } | {key: end for key, end in zip(("valid_min", "valid_max"), ends, strict=True) if end is not None}  # fmt: skip


class OwnNumbers:
    """What was given since the last record, and by whom."""

    def __init__(self) -> None:
        self.waiting: dict[str, Value] = {}
        """The latest of each name since the last record."""
        self._sources: dict[str, str] = {}
        """Who gives it, by name,"""
        self._described: dict[str, OwnNumber] = {}
        """and what they say of it."""
        self._said: set[str] = set()

    def keep(self, numbers: Any, source: str) -> dict[str, Value]:
        """Those of a person's numbers that can be kept, for the next record; of the others it is said why not."""
        if not isinstance(numbers, Mapping):
            said = f"it gave {type(numbers).__name__}, not numbers by their names such as {{'accuracy': 0.5}}"
            self.refuse(f"what {source} gives", said)
            return {}
        good: dict[str, Value] = {}
        for name, given in numbers.items():
            if why := EVALUATED.get(name) or why_no_name(name) or self._why_not(name, source):
                self.refuse(f"{name!r:.60}", why)
                continue
            own = given if isinstance(given, OwnNumber) else None
            try:
                good[name] = value_of(own.value if own else given)
            except ValueError as error:
                self.refuse(name, str(error))
            else:
                self._sources[name] = source
                if own and name not in self._described:
                    self._described[name] = self._in_range(name, own)
                if not isinstance(good[name], Tensor):  # one on a GPU is looked at when it is fetched, by `take`
                    self._look(name, np.asarray(good[name]))
        self.waiting |= good
        return good

    def _in_range(self, name: str, own: OwnNumber) -> OwnNumber:
        """What is said of a number, without a range that is none."""
        try:
            low, high = (None if end is None or math.isinf(end) else float(end) for end in own.range)
        except (TypeError, ValueError, OverflowError):
            low = high = math.nan
        if low is None or high is None or low < high:
            return replace(own, range=(low, high))
        self.say_once(f"{name} range", f"manyeyes leaves range={own.range!r:.60} of {name} out: it must rise")
        return replace(own, range=(None, None))

    def _look(self, name: str, x: np.ndarray) -> None:
        """Say once of a number that it was outside what its author said of it; it is kept."""
        low, high = self._described[name].range if name in self._described else (None, None)
        if outside := out_of_range(x, low, high):
            self.say_once(f"{name} outside", f"{name} {outside}: it is kept as it is")

    def _why_not(self, name: str, source: str) -> str:
        if name in self._sources:
            by = self._sources[name]
            return "" if by == source else f"{by} gives a number of this name already: choose another"
        return "" if len(self._sources) < MOST_NAMES else f"more than {MOST_NAMES} names are not kept of a job"

    def refuse(self, name: str, why: str) -> None:
        """Say that it is not kept, once a name."""
        self.say_once(name, f"manyeyes does not keep {name}: {why}")

    def say_once(self, what: str, text: str) -> None:
        """A warning, unless one came of this before."""
        if what not in self._said:
            self._said.add(what)
            say(text)

    def take(self, writer: RunWriter | None, row: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """For this row of the trace, what was given since the last one; its variables are made.

        Without a writer, in a process that is not the first, nothing.
        """
        found, self.waiting = self.waiting, {}
        if writer is None or not found:
            return {}
        assert writer.trace is not None
        good: dict[str, np.ndarray] = {}
        new: dict[str, Variable] = {}
        for name, value in found.items():
            x = np.asarray(float(value) if isinstance(value, Tensor) else value, np.float64)
            there = writer.trace.dims(name)
            if why := _why_no_place(name, x, writer.trace, len(new), row):
                self.refuse(name, why)
                continue
            good[name] = x
            self._look(name, x)
            if there is None:
                new[name] = Variable(
                    DIMS[x.ndim], x.shape, "float64", attrs(name, self._sources[name], self._described.get(name))
                )
        writer.make_room(new)
        return good


def _why_no_place(name: str, x: np.ndarray, trace: TraceWriter, n_new: int, row: Mapping[str, Any]) -> str:
    """Why a value does not fit into a trace that is to get so many new variables; empty where it does."""
    heads, there = trace.heads, trace.dims(name)
    if x.ndim and (heads is None or x.shape != heads[: x.ndim]):
        shape = "no layers that are known" if heads is None else f"{heads[0]} layers of {heads[1]} heads"
        return f"it has shape {list(x.shape)}, and this run has {shape}"
    if name in row or name in trace.others:
        return "this run has a number of this name already: choose another"
    if there is not None and there != DIMS[x.ndim]:
        return f"it is {KINDS[x.ndim]} here, and was {KINDS.get(len(there), 'another')} before"
    if there is None and len(trace.names) + n_new >= MOST_IN_TRACE:
        return f"a run with {MOST_IN_TRACE} variables gets no more"
    return ""
