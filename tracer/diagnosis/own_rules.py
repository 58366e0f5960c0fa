"""Failure modes of a user's: a function of the trace, with what makes it a row of Health.

@tracer.rule(needs=("entropy",), text="Found when a head's entropy ends below 0.1 nats.")
def too_sharp(trace):
    last = trace.entropy.isel(step=-1)
    for layer, head in numpy.argwhere(last.values < 0.1):
        yield int(last.step), [(layer, head)], f"{float(last[layer, head]):.2f} nats"
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tracer.config.field_docs import fields_in_help
from tracer.diagnosis.findings import Advice, Finding, Kind, Severity
from tracer.diagnosis.rules import RULES, Rule
from tracer.diagnosis.whereabouts import placed
from tracer.named_code import name_of, named

if TYPE_CHECKING:
    import xarray as xr


@fields_in_help
@dataclass(frozen=True)
class OwnRule:
    """A function of the trace, and the row that it is."""

    kind: str
    """The function's name, by which findings are told apart."""
    row: Rule
    """As in the table of our own rules."""


Rules = str | OwnRule | Iterable[Any]
"""What may be given as `rules=`: what `rule` makes of a function, `module:name` of it, or several."""


def rule(
    function: Callable[[xr.Dataset], Iterable[Any]] | None = None, *, needs: str | Iterable[Any] = (), text: str = "",
    severity: Severity = "watch", title: str = "", remedy: str = "", source: str = "", records: int = 1,
) -> Any:  # fmt: skip
    """Make a rule of a function, which is given the trace and yields (step, heads, evidence) for what it finds.

    `needs`: the variable or variables that the trace must hold, with a value in `records` rows at least; a run without
    them is told as not measured. `text`: when it is found, and why there (else the first line of the docstring).
    `severity`: "bad" or "watch". `title`: of a finding; else the function's name. `remedy`: what helps. `source`: who
    says so.
    A function that raises, or yields anything else, or a step or head that the trace lacks, is said to have gone wrong.
    """
    needs = (needs,) if isinstance(needs, str) else tuple(needs)
    if wrong := [one for one in needs if not isinstance(one, str)]:
        raise ValueError(f"rule: needs={wrong[0]!r:.60} is no name of a variable of the trace")
    if function is None:
        return partial(
            rule, needs=needs, text=text, severity=severity, title=title, remedy=remedy, source=source,
            records=records,
        )  # fmt: skip
    kind, code = function.__name__, name_of(function)
    if kind in RULES:
        raise ValueError(f"rule {kind}: the name is taken by one of ours; give the function another")
    if severity not in ("bad", "watch"):
        raise ValueError(f"rule {kind}: severity={severity!r} is neither 'bad' nor 'watch'")
    told = text or (function.__doc__ or "").strip().split("\n")[0] or f"Found by {code}."
    name = title or kind.replace("_", " ")

    def search(_: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
        for step, heads, evidence in _yielded(function, trace, code):
            try:
                at, where = placed(step, heads, trace)
            except Exception as error:  # of what somebody's code gave
                raise ValueError(f"rules={code} {error}") from error
            yield Finding(cast("Kind", kind), severity, name, at, where, evidence, Advice(remedy), source or code)

    return OwnRule(kind, Rule(name, needs, search, told, records))


def _yielded(function: Callable[[xr.Dataset], Iterable[Any]], trace: xr.Dataset, code: str) -> list[tuple[Any, ...]]:
    """All (step, heads, evidence) that the function yields, the last as text. ValueError, with its name, for others."""
    try:
        found = function(trace)
        ones = list(found) if isinstance(found, Iterable) else None
        fit = ones is not None and all(isinstance(one, tuple | list) and len(one) == 3 for one in ones)
        rows = [(step, heads, str(evidence)) for step, heads, evidence in ones] if ones is not None and fit else None
    except Exception as error:  # somebody's code, which raises whatever it runs into
        raise ValueError(f"rules={code} raised {type(error).__name__}: {error}") from error
    if rows is None:
        raise ValueError(f"rules={code} gave something else than (step, heads, evidence); yield these three for each")
    return rows


def say_wrong(why: str) -> None:
    """A warning, even where warnings are errors: everything else is looked for."""
    with contextlib.suppress(RuntimeWarning):
        warnings.warn(f"{why}: the rule is left out, everything else is looked for", RuntimeWarning, stacklevel=4)


def given_rules(rules: Rules) -> dict[str, Rule]:
    """By kind. ValueError for what is none, and for two of one name."""
    found: dict[str, Rule] = {}
    if not isinstance(rules, Iterable | OwnRule):
        raise ValueError(f"rules={rules!r:.60}: make each with tracer.rule, or name it as module:name")
    for one in [rules] if isinstance(rules, str | OwnRule) else rules:
        thing = named(one, "rules") if isinstance(one, str) else one
        if not isinstance(thing, OwnRule):
            raise ValueError(f"rules={name_of(one)}: make it with tracer.rule")
        if thing.kind in found:
            raise ValueError(f"rules: two are called {thing.kind}")
        found[thing.kind] = thing.row
    return found
