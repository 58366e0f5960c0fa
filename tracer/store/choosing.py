"""Which of many runs somebody means, and in what they differ: by name, note and everything that run.json says of them.

What is asked for is words, all of which must hold: `lr>0.01 seed=1 demo`; `and`, `or` and `not` join them as they join
heads in the finder (`tracer.asked_line`). A word with =, !=, <, <=, > or >= compares a setting, by its whole name
(`optim.lr`) or its last part (`lr`; one of several that are called so is enough), or what the trace holds by this name,
at its last record (`accuracy>0.4`; `induction>0.5`: of one head is enough); `tag=` compares each tag; any other word is
looked for in the run's name, preset, status, kind, note and tags.
"""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tracer.asked_line import COMPARISONS, SIGN, LineReader
from tracer.config.fields import to_dict
from tracer.measures.measure import HEAD, LAYER
from tracer.store.housekeeping import note
from tracer.store.run import Run


class Wanted(Protocol):
    """What `wanted` gives: is a run of these settings, and of these numbers, one that is asked for?"""

    def __call__(self, found: Settings, numbers: Numbers = ..., /) -> bool: ...


Settings = Mapping[str, Any]
OF_ONE_STEP = (("step",), LAYER, HEAD)
TOKEN = re.compile(rf"(?P<compare>{SIGN})|(?P<join>[,&](?!\S))|(?P<word>(?:(?!!=|[,&](?!\S))[^\s<>=])+)")
NAME = re.compile(r"[A-Za-z_][\w.]*")
ORDERED = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?inf|\d{4}-[\d:T.+-]*", re.IGNORECASE)
"""A number, or a date as run.json writes it."""
WORDS = ("and", "or")
TEXTS = ("run", "preset", "status", "kind", "author", "note", "tags")
"""Where a word that compares nothing is looked for."""
Numbers = Callable[[str], Sequence[float]]
"""What a run's trace says at the end, by the name of a variable."""
ABOUT = (*TEXTS, "created", "step", "n_params")
"""What `settings` says besides the run's config: facts, in which two runs of one config differ as well."""


def settings(run: Run) -> dict[str, Any]:
    """Every setting of a run by its dotted name, those of its config and those that a person gave (`settings=`), and
    `ABOUT`; ValueError or TypeError where run.json is damaged."""
    meta, about = run.meta, run.about
    facts = {
        "run": run.name, "preset": meta.get("preset") or "", "status": run.status, "kind": about.kind,
        "author": about.author, "note": note(run), "created": str(meta["created"]), "step": int(meta["step"]),
        "n_params": int(meta["n_params"]), "tags": " ".join(meta.get("tags") or ()),
    }  # fmt: skip
    config = meta.get("built_with") or {}
    if run.can("recipe"):  # a setting that is newer than the run has its default
        config = json.loads(json.dumps(to_dict(run.config)))
    said = facts | {"model.n_layers": about.n_layers, "model.n_ctx": about.n_ctx}
    said |= {name: value for name, value in flat(config).items() if name != "run"}
    said |= {code: meta[code] for code in ("loss", "build") if meta.get(code)}
    theirs = meta.get("settings") or {}
    return said | {f"settings.{name}" if name in said else name: value for name, value in theirs.items()}


def last_values(run: Run, name: str) -> list[float]:
    """What was recorded last of a variable, of each layer or head where it is of these; empty where nothing was.

    A trace that cannot be read holds nothing.
    """
    import numpy as np  # takes 0.1 s, which commands that read no trace save

    try:
        trace = run.trace
        if name not in trace.data_vars or trace[name].dims not in OF_ONE_STEP:
            return []
        values = trace[name].values.reshape(trace.sizes["step"], -1)
    except (ValueError, OSError):
        return []
    known = ~np.isnan(values)
    rows = np.flatnonzero(known.any(1))
    return values[rows[-1]][known[rows[-1]]].tolist() if rows.size else []


def found_by(text: str) -> Callable[[Run], bool]:
    """Does a run hold all that the text asks for? ValueError or TypeError where its run.json is damaged."""
    holds = wanted(text)
    return lambda run: holds(settings(run), functools.partial(last_values, run))


def wanted(text: str) -> Wanted:
    """Do a run's `settings`, and the last values of its trace, hold what the text asks for? An empty text asks for
    nothing. Numbers are asked for where no setting has the name. ValueError where a comparison is none."""
    reader = _RunsAsked(text)
    asked = reader.line() if reader.tokens else _Condition(lambda found, numbers: True)
    return lambda found, numbers=_none: asked.holds(found, numbers)


def names_in(text: str) -> list[str]:
    """What the comparisons of a text are about, tags aside."""
    reader = _RunsAsked(text)
    if reader.tokens:
        reader.line()
    return list(dict.fromkeys(name for name in reader.names if name not in ("tag", "tags")))


def values_of(run: Run, name: str) -> list[Any]:
    """What a comparison of this name compares in a run: its settings that are called so, else what it recorded last."""
    return _held(settings(run), name) or last_values(run, name)


def _held(found: Settings, name: str) -> list[Any]:
    return [found[name]] if name in found else [found[key] for key in found if key.endswith(f".{name}")]


def _none(name: str, /) -> Sequence[float]:
    return ()


def differences(runs: Sequence[Settings]) -> dict[str, list[Any]]:
    """The settings, facts aside, in which these runs differ, each with its value by run (None where a run has none)."""
    names = dict.fromkeys(name for run in runs for name in run if name not in ABOUT)
    values = {name: [run.get(name) for run in runs] for name in names}
    return {name: of for name, of in values.items() if any(one != of[0] for one in of)}


@dataclass(frozen=True)
class _Condition:
    """On the settings and numbers of a run."""

    holds: Callable[[Settings, Numbers], bool]

    def __and__(self, other: _Condition) -> _Condition:
        return _Condition(lambda found, numbers: self.holds(found, numbers) and other.holds(found, numbers))

    def __or__(self, other: _Condition) -> _Condition:
        return _Condition(lambda found, numbers: self.holds(found, numbers) or other.holds(found, numbers))

    def __invert__(self) -> _Condition:
        return _Condition(lambda found, numbers: not self.holds(found, numbers))


class _RunsAsked(LineReader[_Condition]):
    """Of runs."""

    def __init__(self, text: str) -> None:
        super().__init__([(str(m.lastgroup), m[0]) for m in TOKEN.finditer(text)])
        self.names: list[str] = []

    def plain(self) -> _Condition:
        kind, word = self.next
        if kind in ("end", "join") or word in WORDS:
            raise ValueError(f"{self.shown()} is not expected here: what is asked for is missing, as in lr>0.01")
        if kind == "compare":
            raise ValueError(f"{self.shown()} compares nothing: write a name before it, as in lr>0.01")
        self.at += 1
        if self.next[0] != "compare":
            return _Condition(lambda found, _: any(word.lower() in str(found.get(one, "")).lower() for one in TEXTS))
        return self.comparison(word)

    def comparison(self, name: str) -> _Condition:
        sign = self.next[1]
        self.at += 1
        kind, value = self.next
        if kind == "compare":
            raise ValueError(f"{name}{sign}{value} is no comparison: there are {', '.join(COMPARISONS)}")
        if kind == "end":
            raise ValueError(f"{name}{sign} needs a value after it, as in {name}{sign}0.01")
        if not NAME.fullmatch(name):
            raise ValueError(f"“{name}” is not a name that can be compared, as lr is in lr{sign}{value}")
        if sign[0] in "<>" and name in ("tag", "tags"):
            raise ValueError(f"{name}{sign}{value}: a run has a tag (=) or has it not (!=)")
        if sign[0] in "<>" and not ORDERED.fullmatch(value):
            raise ValueError(f"“{value}” is no number: {name}{sign} needs one after it, or a date (2026-11-28)")
        self.at += 1
        self.names.append(name)
        if name in ("tag", "tags"):
            return _Condition(lambda found, _: _tagged(found, sign, value))
        return _Condition(
            lambda found, numbers: any(
                _compared(COMPARISONS[sign], one, value) for one in _held(found, name) or numbers(name)
            )
        )


def _tagged(found: Settings, sign: str, tag: str) -> bool:
    among = tag.lower() in str(found.get("tags", "")).lower().split()
    return among == (sign == "=")


def _compared(compare: Callable[[Any, Any], bool], held: Any, value: str) -> bool:
    """Numbers as numbers; texts, true, false and null as they stand in run.json; what has no order is not in it."""
    if isinstance(held, bool) or held is None or isinstance(held, str):
        held = str(held).lower() if not isinstance(held, str) else held
        if compare in (operator.eq, operator.ne):
            return compare(held.lower(), {"null": "none"}.get(value.lower(), value.lower()))
        return held[:1].isdigit() and compare(held, value)  # a date
    try:
        return compare(float(held), float(value))
    except (TypeError, ValueError, OverflowError):
        return compare in (operator.eq, operator.ne) and compare(str(held).replace(" ", ""), value)  # a list


def flat(config: Mapping[str, Any], of: str = "") -> dict[str, Any]:
    """Nested settings as optim.lr: 0.001."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{of}{name}.") if isinstance(value, dict) and value else {f"{of}{name}": value}
    return found
