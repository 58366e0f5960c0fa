"""Which of many runs somebody means, and in what they differ: by name, note and everything that run.json says of them.

What is asked for is words apart by spaces, all of which must hold: `lr>0.01 seed=1 demo`. A word with =, !=, <, <=, >
or >= compares a setting, by its whole name (`optim.lr`) or its last part (`lr`; one of several that are called so is
enough); any other word is looked for in the run's name, preset, status, kind and note.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracer.config.fields import to_dict
from tracer.store.housekeeping import note
from tracer.store.layout import FORMAT
from tracer.store.run import Run

Settings = Mapping[str, Any]
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
WORD = re.compile(r"([A-Za-z_][\w.]*)(!=|<=|>=|=|<|>)(.+)")
TEXTS = ("run", "preset", "status", "kind", "author", "note")
"""Where a word that compares nothing is looked for."""
ABOUT = (*TEXTS, "created", "step", "n_params")
"""What `settings` says besides the run's config: facts, in which two runs of one config differ as well."""


def settings(run: Run) -> dict[str, Any]:
    """Every setting of a run by its dotted name, and `ABOUT`; ValueError or TypeError where run.json is damaged."""
    meta, about = run.meta, run.about
    facts = {
        "run": run.name, "preset": meta.get("preset") or "", "status": run.status, "kind": about.kind,
        "author": about.author, "note": note(run), "created": str(meta["created"]), "step": int(meta["step"]),
        "n_params": int(meta["n_params"]),
    }  # fmt: skip
    ours = meta["format"] == FORMAT  # there a setting that is newer than the run has its default
    told = json.loads(json.dumps(to_dict(run.config))) if ours else meta.get("config") or {}
    config = {name: value for name, value in flat(told).items() if name != "run"}
    return facts | {"model.n_layers": about.n_layers, "model.n_ctx": about.n_ctx} | config


def wanted(text: str) -> Callable[[Settings], bool]:
    """Does a run's `settings` hold all that the text asks for? An empty text asks for nothing."""
    asked = [_condition(word) for word in text.split()]
    return lambda found: all(holds(found) for holds in asked)


def differences(runs: Sequence[Settings]) -> dict[str, list[Any]]:
    """The settings, facts aside, in which these runs differ, each with its value by run (None where a run has none)."""
    names = dict.fromkeys(name for run in runs for name in run if name not in ABOUT)
    values = {name: [run.get(name) for run in runs] for name in names}
    return {name: of for name, of in values.items() if any(one != of[0] for one in of)}


def _condition(word: str) -> Callable[[Settings], bool]:
    parts = WORD.fullmatch(word)
    if parts is None:
        return lambda found: any(word.lower() in str(found.get(name, "")).lower() for name in TEXTS)
    name, compare, value = parts[1], COMPARISONS[parts[2]], parts[3]

    def holds(found: Settings) -> bool:
        held = [found[name]] if name in found else [found[key] for key in found if key.endswith(f".{name}")]
        return any(_compared(compare, one, value) for one in held)

    return holds


def _compared(compare: Callable[[Any, Any], bool], held: Any, value: str) -> bool:
    """Numbers as numbers; texts, true, false and null as they stand in run.json; what has no order is not in it."""
    if isinstance(held, bool) or held is None or isinstance(held, str):
        held = str(held).lower() if not isinstance(held, str) else held
        if compare in (operator.eq, operator.ne):
            return compare(held.lower(), {"null": "none"}.get(value.lower(), value.lower()))
        return isinstance(held, str) and held[:1].isdigit() and compare(held, value)  # a date
    try:
        return compare(float(held), float(value))
    except (TypeError, ValueError):
        return compare in (operator.eq, operator.ne) and compare(str(held).replace(" ", ""), value)  # a list


def flat(config: Mapping[str, Any], of: str = "") -> dict[str, Any]:
    """Nested settings as optim.lr: 0.001."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{of}{name}.") if isinstance(value, dict) and value else {f"{of}{name}": value}
    return found
