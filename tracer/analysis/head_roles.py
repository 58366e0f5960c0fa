"""What heads are called: a role is a variable of the trace, how high it must be, and the control that it must beat.

    copier = tracer.role("copier", measure="again_the_copy", at_least=0.5, control="again_what_followed")
    print(tracer.roles("with-probe", roles=[copier]))

Ours are the rows of ROLES. The number of a head has a 95 % interval where its standard error was recorded; then it is
the low end of that interval which must lie above the control. Where the control was not recorded, nobody can say
whether a head that is high enough has the role.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, UInt8

from tracer.analysis.head_sets import THRESHOLD
from tracer.config.field_docs import fields_in_help
from tracer.measures import CONTROLS, HEAD, SE, in_trace
from tracer.measures.aliases import Head
from tracer.measures.intervals import margins, within
from tracer.named_code import name_of, named
from tracer.store import Run, nearest_row, open_run

if TYPE_CHECKING:
    import xarray as xr


@fields_in_help
@dataclass(frozen=True)
class Role:
    """One row: heads whose `measure` is `at_least` as high, and above `control`, are called `label`."""

    name: str
    """A key, for code."""
    measure: str
    """A variable of the trace, one value a head."""
    at_least: float
    """Of the measure, for a head to have the role."""
    control: str | None = None
    """A variable that the measure must be above; `chance`: uniform attention; None: nothing."""
    label: str = ""
    """What pages call such a head."""
    detail: str = ""
    """A variable that says more of a head with the role,"""
    after: str = ""
    """and the word after its number."""
    does: str = ""
    """What such a head does, in plain words."""


CHANCE = "chance"
"""The control of a score that any text shows: what uniform attention would have."""
ROLES = (
    Role("induction", "induction", THRESHOLD, CONTROLS["induction"], "induction",
         does="looks at what followed the same token last time"),
    Role("duplicate_token", "duplicate_token", THRESHOLD, CONTROLS["duplicate_token"], "duplicate token",
         does="looks at the same token, where it stood before"),
    Role("previous_token", "previous_token", THRESHOLD, CHANCE, "previous token", does="looks at the token before"),
    Role("current_token", "current_token", THRESHOLD, CHANCE, "own token", does="looks at the token that it stands at"),
    Role("first_token", "first_token", THRESHOLD, CHANCE, "first token", does="looks at the first token"),
    Role("fixed_distance", "fixed_distance", THRESHOLD, CHANCE, "fixed distance", "fixed_distance_at", "back",
         does="looks a fixed number of tokens back"),
)  # fmt: skip
"""Ours, those first by which a head is called where it has several."""
NONE, UNKNOWN, UNSAID = 0, 254, 255
"""Codes of heads without a role: it has none; it may have one, whose control was not recorded; a score was not."""
Given = str | Role | Iterable[Any]
"""What may be given as `roles=`: what `role` makes, `module:name` of it, or several."""


@fields_in_help
@dataclass(frozen=True)
class HeadRole:
    """A role that a head has, with what it has it by."""

    head: Head
    """(layer, head)."""
    role: Role
    """The row of the table."""
    value: float
    """Of the role's measure."""
    low: float
    """95 % interval; nan where no standard error was recorded."""
    high: float
    """The interval's other end."""
    control: float
    """nan where the role has none."""
    detail: str = ""
    """What else is said of it: "2 back"."""

    @property
    def label(self) -> str:
        """By what the head is called, with that."""
        return self.role.label + f", {self.detail}" * bool(self.detail)

    def __str__(self) -> str:
        interval = "" if math.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        control = "" if math.isnan(self.control) else f", control {self.control:.2f}"
        needed = f"at least {self.role.at_least:g} of {self.role.measure}"
        return f"L{self.head[0]}H{self.head[1]}  {self.label}: {self.value:.2f}{interval}{control} ({needed})"


@fields_in_help
@dataclass(frozen=True)
class HeadRoles:
    """Which head has which role at one step; `str` of it says so, a line each."""

    step: int
    """The recorded step that they are of."""
    heads: Mapping[Head, tuple[HeadRole, ...]]
    """Of every head that has a role: all that it has, in the order of the table."""
    not_recorded: Mapping[str, str] = field(default_factory=dict)
    """By the name of a role, what the run lacks for it."""

    def of(self, role: str) -> list[HeadRole]:
        """The heads of one role, the highest first."""
        found = [one for roles in self.heads.values() for one in roles if one.role.name == role]
        return sorted(found, key=lambda one: -one.value)

    def __str__(self) -> str:
        lines = [str(one) for roles in self.heads.values() for one in roles]
        lines += [f"{name}: not recorded here: {what}" for name, what in self.not_recorded.items()]
        return "\n".join([f"step {self.step:,}", *(lines or ["no head has a role"])])


def role(name: str, measure: str, at_least: float, control: str | None = None, label: str = "") -> Role:
    """Make a role of a variable of the trace, ours or one's own (a measure, a score of a probe, a logged number).

    A head has it where `measure`, [step layer head], is `at_least` as high and above `control`, another variable: by
    the low end of its 95 % interval, where `<measure>_se` is recorded. The control "chance" is what uniform attention
    would have, where the trace says that of the measure. `label`: what such heads are called; else the name. ValueError
    for what cannot be.
    """
    for what, text in (("name", name), ("measure", measure), ("control", "-" if control is None else control)):
        if not isinstance(text, str) or not text.strip() or not text.isprintable():
            raise ValueError(f"role {name!r:.60}: {what}={text!r:.60} names nothing: write a text, such as 'induction'")
    if name in {one.name for one in ROLES}:
        raise ValueError(f"role {name}: the name is taken by one of ours; give it another")
    if not isinstance(at_least, int | float) or not math.isfinite(at_least):
        raise ValueError(f"role {name}: at_least={at_least!r:.60} is no number that {measure} could reach")
    if measure.endswith(SE) or measure == control:
        told = "its own control" if measure == control else "the standard error of a number"
        raise ValueError(f"role {name}: {measure} is {told}; name another variable of the trace")
    return Role(name, measure, float(at_least), control, label.strip() or name.replace("_", " "))


def given_roles(roles: Any) -> tuple[Role, ...]:
    """Those that a person gave (`Given`). ValueError for what is none, and for two of one name."""
    if not isinstance(roles, Iterable | Role):
        raise ValueError(f"roles={roles!r:.60}: make each with tracer.role, or name it as module:name")
    found: list[Role] = []
    for one in [roles] if isinstance(roles, str | Role) else roles:
        thing = named(one, "roles") if isinstance(one, str) else one
        for each in thing if isinstance(thing, list | tuple) else [thing]:
            if not isinstance(each, Role):
                raise ValueError(f"roles={name_of(one)}: make it with tracer.role")
            found.append(each)
    names = [one.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"roles: two are called {twice[0]!r}")
    return tuple(found)


def roles(run: Run | str, step: int | None = None, roles: Given = ()) -> HeadRoles:
    """The roles that the heads of a run (or of its name) have at the record nearest to a step; default: its last.

    `roles`: of a user's (`tracer.role`, or its `module:name`), after ours. What a role lacks is in `not_recorded`.
    """
    opened = open_run(run) if isinstance(run, str) else run
    table, trace = (*ROLES, *given_roles(roles)), opened.trace
    if not trace.sizes["step"]:
        raise ValueError(f"{opened.name} has recorded nothing yet, so no head has a role")
    return roles_in(trace, step, table)


def roles_in(trace: xr.Dataset, step: int | None, table: Iterable[Role] = ROLES) -> HeadRoles:
    """The same of a trace that holds a row, for these roles."""
    now = trace.isel(step=[nearest_row(trace["step"].values, step)])
    found: list[HeadRole] = []
    lacking: dict[str, str] = {}
    for row in table:
        if lacks := _lacks(now, row):
            lacking[row.name] = lacks
            continue
        measured = _measured(now, row)[:, 0]
        values, low, _, beside = measured
        has = np.argwhere(_has(row, values, low, beside)).tolist()
        found += [_role_of(now, row, measured, (layer, head)) for layer, head in has]
    heads = sorted({one.head for one in found})
    return HeadRoles(
        int(now["step"][0]), {head: tuple(one for one in found if one.head == head) for head in heads}, lacking
    )


def nearest_role(
    trace: xr.Dataset, head: Head, step: int | None, table: Iterable[Role]
) -> tuple[HeadRole, bool] | None:
    """By what a head is called at the record nearest to a step, and True; of one without a role, the role that it is
    nearest to, by its score, and False. None where no score of it was recorded."""
    now, found = trace.isel(step=[nearest_row(trace["step"].values, step)]), []
    for row in table:
        if row.measure not in now or now.variables[row.measure].dims != HEAD:
            continue
        measured = _measured(now, row)[:, 0]
        values, low, _, beside = measured
        if not math.isfinite(values[head]):
            continue
        one = _role_of(now, row, measured, head)
        if _has(row, values, low, beside)[head]:
            return one, True
        found.append(one)
    return (max(found, key=lambda one: one.value - one.role.at_least), False) if found else None


def _role_of(now: xr.Dataset, row: Role, measured: Float[np.ndarray, "4 layer head"], head: Head) -> HeadRole:
    """A role with the numbers of a head, whether it has it or not."""
    value, low, high, beside = (float(x[head]) for x in measured)
    return HeadRole(head, row, value, low, high, beside, _detail(now, row, (0, *head)))


def role_codes(trace: xr.Dataset, table: Sequence[Role] = ROLES) -> UInt8[np.ndarray, "step layer head"]:
    """By what each head is called at each record: the place in the table, from 1 on, of the first role that it has.

    Without one: UNKNOWN where a score is high enough and its control was not recorded; UNSAID where a score was not;
    else NONE.
    """
    shape = [trace.sizes[name] for name in HEAD]
    found, unknown, unsaid = np.zeros(shape, np.uint8), np.zeros(shape, bool), np.zeros(shape, bool)
    for i, row in enumerate(table):
        if row.measure not in trace or trace.variables[row.measure].dims != HEAD:
            unsaid[:] = True
            continue
        values, low, _, beside = _measured(trace, row)
        unsaid |= ~np.isfinite(values)
        unknown |= (values >= row.at_least) & np.isnan(beside) & (row.control is not None)
        found[(found == NONE) & _has(row, values, low, beside)] = i + 1
    return np.where(found, found, np.where(unknown, UNKNOWN, np.where(unsaid, UNSAID, NONE))).astype(np.uint8)


def lost_codes(trace: xr.Dataset, table: Sequence[Role] = ROLES) -> UInt8[np.ndarray, "step layer head"]:
    """By what each head was called, and is no more: the role that it had at an earlier record and is known not to have.

    Of several the one that it had last, then the first in the table; its place there, from 1 on, or NONE.
    """
    shape = [trace.sizes[name] for name in HEAD]
    lost, latest = np.zeros(shape, np.uint8), np.zeros(shape, int)
    records = np.arange(1, shape[0] + 1)[:, None, None]
    for i, row in enumerate(table):
        if row.measure not in trace or trace.variables[row.measure].dims != HEAD:
            continue
        values, low, _, beside = _measured(trace, row)
        has = _has(row, values, low, beside)
        lacks = (values < row.at_least) | (np.isfinite(values + beside) & ~has)
        had = np.maximum.accumulate(np.where(has, records, 0))
        later = lacks & (had > latest)
        lost[later], latest[later] = i + 1, had[later]
    return lost


def _detail(trace: xr.Dataset, row: Role, at: tuple[int, int, int]) -> str:
    """What else is said of a head with a role; empty where nothing is, or it was not recorded."""
    if row.detail not in trace or trace[row.detail].dims != HEAD:
        return ""
    value = float(trace[row.detail].values[at])
    return f"{value:g} {row.after}" if math.isfinite(value) else ""


def _lacks(now: xr.Dataset, row: Role) -> str:
    """What is not there for a role; empty where all is."""
    if row.measure not in now or not is_known(now[row.measure]):
        return row.measure
    if now[row.measure].dims != HEAD:
        return f"{row.measure} as a number of every head"
    if row.control == CHANCE and _chance(now, row) is not None:
        return ""
    if row.control is not None and (row.control not in now or not is_known(now[row.control])):
        return f"{row.control}, its control"
    fits = row.control is None or set(now[row.control].dims) <= set(HEAD)
    return "" if fits else f"{row.control}, its control, as a number of every head"


def _chance(trace: xr.Dataset, row: Role) -> float | None:
    """What uniform attention would have, as the trace says; a variable that is called so comes before it."""
    said = trace.variables[row.measure].attrs.get("chance")
    if row.control != CHANCE or CHANCE in trace or not isinstance(said, int | float):
        return None
    return float(said) if math.isfinite(said) else None


def is_known(values: xr.DataArray) -> bool:
    """Is there a finite number?"""
    return values.dtype.kind in "fiu" and bool(np.isfinite(values.values).any())


def _measured(trace: xr.Dataset, row: Role) -> Float[np.ndarray, "4 step layer head"]:
    """A role's measure, both ends of its interval and its control; nan where one was not recorded."""
    of = trace.variables[row.measure]
    values = of.values.astype(float)
    around, beside = margins(trace, row.measure), np.full(values.shape, np.nan)
    low, high = np.full((2, *values.shape), np.nan) if around is None else within(
        values, around, in_trace(trace, row.measure)
    )  # fmt: skip
    if (chance := _chance(trace, row)) is not None:
        beside[:] = chance
    elif row.control in trace and set((control := trace.variables[row.control]).dims) <= set(HEAD):
        beside = control.set_dims(of.sizes).transpose(*HEAD).values.astype(float)
    return np.stack([values, low, high, beside])


def _has(row: Role, values: np.ndarray, low: np.ndarray, beside: np.ndarray) -> Bool[np.ndarray, "*any"]:
    """Is a score high enough, and above its control? Not above one that is not known."""
    above = row.control is None or np.where(np.isnan(low), values, low) > beside
    return np.asarray((values >= row.at_least) & above)
