"""Measures of a user's: a function of rows of the pattern, with all that a page says of its numbers.

    @tracer.measure(label="Attention on nothing", unit="share", range=(0, 1), chance=0.0, source="Miller 2023")
    def on_nothing(rows):
        return 1 - rows.pattern.sum(-1)

What it says travels in the attributes of its array, so that a run opens whole where nobody has the code.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from tracer.heads.row_block import RowBlock
from tracer.measures.described import SHORT, always, out_of_range
from tracer.measures.measure import HEAD, Measure
from tracer.measures.own_names import why_no_name
from tracer.named_code import FREE_SECONDS, SHARE, kind_of, name_of, named

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class OwnMeasure:
    """A function of a `RowBlock` that gives one number for each row, and what is said of it."""

    row: Measure
    function: Callable[[RowBlock], Tensor]
    code: str
    """Where it is, `module:name`; empty of one that tracer made, for a probe."""

    def __call__(self, block: RowBlock) -> Tensor:
        return self.function(block)


Measures = str | OwnMeasure | Callable[..., Any] | Iterable[Any]
"""What may be given as `measures=`: functions, what `measure` makes of them, `module:name` of either, or several."""


def measure(
    function: Callable[[RowBlock], Tensor] | None = None, *, label: str = "", unit: str = "",
    range: tuple[float | None, float | None] = (None, None), chance: float | None = None, source: str = "",
    formula: str = "", worse: str = "", note: str = "", probe: str = "text", short: str = "",
    palette: str = "sequential",
) -> Any:  # fmt: skip
    """Make a measure of a function: `rows` (`tracer.RowBlock`) to one number a row, [batch head query_pos].

    Its name is the function's. `label`, `unit`, `range` (the smallest and largest possible value), `chance` (the value
    of uniform attention), `source` (who defined it), `formula` (else the first line of the docstring), `worse` (which
    end nobody wants), `note` (what a reader could get wrong): what pages say of it. `probe`: what it is a mean over:
    "text" (held-out text, rows q >= 1), "repeat" (Probe R, its second copy), or the name of a probe of one's own.
    ValueError for a name that is taken, and for a range that is none.
    """
    if function is None:
        return partial(
            measure, label=label, unit=unit, range=range, chance=chance, source=source, formula=formula, worse=worse,
            note=note, probe=probe, short=short, palette=palette,
        )  # fmt: skip
    name, (low, high) = checked_name(function.__name__), range
    if low is not None and high is not None and low >= high:
        raise ValueError(f"measure {name}: range={range} must rise")
    if worse not in ("", "high", "low") or palette not in ("sequential", "diverging"):
        raise ValueError(f"measure {name}: worse={worse!r} is '', 'high' or 'low', palette={palette!r} is 'sequential' "
                         f"or 'diverging'")  # fmt: skip
    label = label or name.replace("_", " ").capitalize()
    told = (function.__doc__ or "").strip().split("\n")[0]
    row = Measure(
        name=name, label=label, short=short or name.replace("_", " ")[:SHORT].strip(),
        formula=formula or told or f"see {name_of(function)}",
        source=source or name_of(function), probe=probe, dims=HEAD, unit=unit, low=low, high=high,
        palette=cast("Literal['sequential', 'diverging']", palette), worse=cast("Literal['', 'high', 'low']", worse),
        note=note, chance_text=f"given with {name}" if chance is not None else "",
        chance=None if chance is None else partial(always, chance),
    )  # fmt: skip
    return OwnMeasure(row, function, name_of(function))


def checked_name(name: str, of: str = "measure, which is that of its function") -> str:
    """A name for a variable of a trace that no other has. ValueError for one that cannot be."""
    if why := why_no_name(name):
        raise ValueError(f"{name!r} cannot be the name of a {of}: {why}")
    return name


def given(measures: Measures) -> tuple[OwnMeasure, ...]:
    """Measures that a person gave: made with `tracer.measure`, functions, or `module:name` of either.

    ValueError for what is none, and for two of one name.
    """
    found: list[OwnMeasure] = []
    for one in [measures] if isinstance(measures, str | OwnMeasure) or callable(measures) else measures:
        thing = named(one, "measures") if isinstance(one, str) else one
        for each in thing if isinstance(thing, list | tuple) else [thing]:
            if not callable(each):
                raise ValueError(f"measures={name_of(one)}: {kind_of(each)} is no function of rows")
            found.append(each if isinstance(each, OwnMeasure) else measure(cast("Callable[..., Tensor]", each)))
    names = [one.row.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"measures: two are called {twice[0]}")
    return tuple(found)


@dataclass
class OwnMeasures:
    """Those of one run. What goes wrong in one is said once, with its name, and the rows go on without it."""

    all: tuple[OwnMeasure, ...]
    say: Callable[[str], None]
    lost: set[str] = field(default_factory=set)
    resting: set[str] = field(default_factory=set)
    """Those that the record that is being made goes without, as they take too long."""
    _told: set[str] = field(default_factory=set)
    _slow: set[str] = field(default_factory=set)
    _took: dict[str, float] = field(default_factory=dict)
    """Seconds of the latest record, by name,"""
    _now: dict[str, float] = field(default_factory=dict)
    """and of this one."""
    _spent: float = 0.0

    def begins(self, training: float, must: bool = False) -> None:
        """A record of a training at fixed steps, `training` seconds in it: what these do not pay for rests, with nan in
        its place. `must`: nothing does. On a GPU the time counts that Python takes."""
        self._took |= self._now
        self._spent, self._now, self.resting = self._spent + sum(self._now.values()), {}, set()
        due = self._spent
        for one in () if must else self.all:
            cost = self._took.get(name := one.row.name, 0.0)
            if name in self._took and due + cost > FREE_SECONDS + SHARE * training:
                self.resting.add(name)
                if name not in self._slow:
                    self._slow.add(name)
                    self.say(
                        f"{_words(one)} is taken at fewer records: it took {cost:.2g} s, and measures of one's own "
                        f"may take {SHARE:.0%} of the training time"
                    )
            else:
                due += cost

    def took(self, name: str, seconds: float) -> None:
        self._now[name] = self._now.get(name, 0.0) + seconds

    def on(self, probe: str) -> OnProbe | None:
        """Those that are means over this probe; None where there are none."""
        there = [one for one in self.all if one.row.probe == probe]
        return OnProbe(there, self) if there else None

    def lose(self, one: OwnMeasure, why: str) -> None:
        self.lost.add(one.row.name)
        self.say(f"{_words(one)} {why}: it is left out from here on, everything else is recorded")

    def seen(self, values: dict[str, Any]) -> None:
        """The values of a record, [layer head] each: what they cannot be is said, once."""
        for one in self.all:
            name = one.row.name
            if name not in values or name in self.lost | self.resting | self._told:
                continue
            if odd := _odd(one.row, values[name]):
                self._told.add(name)
                self.say(f"{_words(one)} {odd}")


def _odd(row: Measure, values: Any) -> str:
    """In words, what is wrong with values [layer head] of a measure; empty where nothing is."""
    known = values[values == values]
    if not len(known):
        return "is nan in every head"
    if math.isinf(float(known.min())) or math.isinf(float(known.max())):
        return "is infinite in some head"
    return out_of_range(known, row.low, row.high)


class OnProbe:
    """Measures that are asked for each block of rows of one probe."""

    def __init__(self, measures: Sequence[OwnMeasure], of: OwnMeasures) -> None:
        self.measures, self.of = measures, of

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.row.name for one in self.measures)

    def __call__(self, block: RowBlock) -> dict[str, Tensor]:
        shape = tuple(block.lse.shape)
        found = {name: block.lse.new_full(shape, float("nan")) for name in self.names}
        for one in self.measures:
            if one.row.name in self.of.lost | self.of.resting:
                continue
            began = time.perf_counter()
            try:
                value = one(block)
                if tuple(value.shape) != shape:
                    self.of.lose(one, f"gives {list(value.shape)}, and not one number a row, [batch head query_pos], "
                                      f"here {list(shape)}")  # fmt: skip
                    continue
                found[one.row.name] = value.to(block.lse)
            except Exception as error:  # somebody's code, which raises whatever it runs into
                self.of.lose(one, f"raised {type(error).__name__}: {error}")
            finally:
                self.of.took(one.row.name, time.perf_counter() - began)
        return found


def _words(one: OwnMeasure) -> str:
    return f"the measure {one.row.name}" + (f" ({one.code})" if one.code else "")
