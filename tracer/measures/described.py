"""What the arrays of a trace say of themselves: a number that no registry here knows has a name, a range and a colour.

A run that was recorded with somebody's measure opens on a machine that never had their code. What is written comes from
strangers: every text is cut and every number must be finite, and what cannot be is as if it had not been said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tracer.measures.measure import HEAD, SE, Measure
from tracer.measures.registry import MEASURES
from tracer.measures.setting import Setting

if TYPE_CHECKING:
    import xarray as xr

SHORT, LABEL, TEXT = 8, 80, 600
"""Characters that are read of an abbreviation, of a label, and of any other text."""
ROUNDING = 1e-4
"""Outside a range by less: a mean of shares may be 1.00001."""


def described(name: str, dims: Sequence[str], said: Mapping[str, Any]) -> Measure:
    """The row of the registry, of a name that it has; else what the attributes of the array say."""
    if name in MEASURES:
        return MEASURES[name]
    low, high = (_number(said.get(key)) for key in ("valid_min", "valid_max"))
    if low is not None and high is not None and low >= high:
        low = high = None
    chance = _number(said.get("chance"))
    label = _text(said.get("long_name"), LABEL) or _text(name.replace("_", " "), LABEL).capitalize()
    return Measure(
        name=name, label=label, short=_text(said.get("short_name"), SHORT) or label[:SHORT],
        formula=_text(said.get("formula"), TEXT) or "not written in the run",
        source=_text(said.get("source"), TEXT) or "not written in the run",
        probe=_text(said.get("probe"), LABEL) or "unknown", dims=tuple(dims), unit=_text(said.get("units"), SHORT * 2),
        low=low, high=high, palette="diverging" if said.get("palette") == "diverging" else "sequential",
        worse=said["worse"] if said.get("worse") in ("high", "low") else "",
        note=_text(said.get("note"), TEXT), chance_text=_text(said.get("chance_text"), TEXT),
        chance=None if chance is None else partial(always, chance),
    )  # fmt: skip


def out_of_range(values: Any, low: float | None, high: float | None) -> str:
    """In words, which of the values (an array or a tensor) is outside a range that was said, nan aside; empty where
    none is."""
    known = values[values == values]
    if not len(known) or (low is None and high is None):
        return ""
    least, most = float(known.min()), float(known.max())
    below, above = (low is not None and least < low - ROUNDING), (high is not None and most > high + ROUNDING)
    if not below and not above:
        return ""
    ends = (-math.inf if low is None else low), (math.inf if high is None else high)
    return f"is {least if below else most:.8g}, and its range= says {ends[0]:g} to {ends[1]:g}"


def always(value: float, _setting: Setting) -> float:
    """As a function of a module, which a cache can keep."""
    return value


def in_trace(trace: xr.Dataset, name: str) -> Measure:
    """The same of a variable of a trace; of one that it lacks, the registry's row."""
    if name in MEASURES:
        return MEASURES[name]
    found = trace.variables[name]
    return described(name, tuple(map(str, found.dims)), found.attrs)


def measures_in(trace: xr.Dataset, dims: tuple[str, ...] = HEAD) -> list[str]:
    """The variables of a trace with these dimensions: those of the registry in its order, then all others."""
    names = [str(name) for name in trace.data_vars if not str(name).endswith(SE)]
    found = [name for name in names if trace.variables[name].dims == dims]  # trace[name] makes coordinates for each
    order = {name: i for i, name in enumerate(MEASURES)}
    return sorted(found, key=lambda name: order.get(name, len(order)))


def _text(said: Any, most: int) -> str:
    """Printable, on one line."""
    if not isinstance(said, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in said[:most]).split())


def _number(said: Any) -> float | None:
    return float(said) if isinstance(said, int | float) and abs(said) < 1e300 and math.isfinite(said) else None
