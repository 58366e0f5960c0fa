"""Runs that differ in their seed, as one thing: when each change came, in which order, and where the seeds part most.

1. Each run has a date of its own for a change, or none: together they are a distribution, of which the median and the
   range are given. The interval of the median is exact whatever the distribution; fewer than six dates have none at
   95 %. Source: order statistics (David and Nagaraja 2003, 7.1).
2. The order of two changes is counted in pairs, both dates of one run (`order_over_seeds`).
3. Where runs jump at different steps, the variance of a curve over them rises and falls again: its peak dates a
   transition without a threshold, and without the dates of 1. A peak counts where the variance is half as large at some
   step before and at some step after, and where it is larger than the highest of as many variances of equal normal
   values would be, in 95 of 100 cases, beside their median (chi squared; Bonferroni over the steps). Runs that part and
   stay apart have no peak. It says where they part, not that something is learned: a bump, a warm-up or an outlier of
   one run has a peak as well. Source: the idea is that of 2606.25010; the rule is ours, tried in docs/truth.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.analysis import training_curves
from tracer.analysis.order_over_seeds import LEVEL, LINKS, Precedence, least_p, precedence
from tracer.analysis.over_seeds import FEWEST
from tracer.analysis.training_curves import NAMES, Curve, Reads
from tracer.store import Run, open_run
from tracer.store.choosing import differences, settings

if TYPE_CHECKING:
    import xarray as xr

LEAST_STEPS = 8
"""Recorded steps that all runs share, below which a peak of the variance says nothing."""


@dataclass(frozen=True)
class Dates:
    """The dates of one change, of the runs that have it."""

    steps: tuple[int, ...]
    """Midpoints, in order."""
    runs: int
    """Runs that hold the curve: the others of them have no change in it, or none that can be dated."""

    @property
    def median(self) -> float:
        """Nan where no run has a date."""
        return float(np.median(self.steps)) if self.steps else float("nan")

    @property
    def interval(self) -> tuple[int, int] | None:
        """The narrowest pair of dates, as far from either end, that holds the median of all seeds 95 times in 100."""
        n = len(self.steps)
        outside = 0.0
        found = None
        for k in range(n // 2):  # outside: more than k of n dates on the other side of the median, either way
            outside += 2 * comb(n, k) / 2**n
            if outside > LEVEL:
                break
            found = self.steps[k], self.steps[n - 1 - k]
        return found


@dataclass(frozen=True)
class Spread:
    """How far one curve is apart over runs, step by step."""

    steps: NDArray[np.int64]
    """Those that all runs recorded."""
    variance: NDArray[np.float64]
    """Over runs [step], in the curve's unit squared, with n - 1 below."""
    peak: int | None
    """The step at which it is largest; None where that is no peak."""
    low: int | None
    high: int | None
    """The first and the last step that it would be with one run left out."""
    note: str
    """Why there is no peak; empty where there is one."""


@dataclass(frozen=True)
class Seeds:
    """Runs laid together; printed, it is a table of their changes and one of their orders."""

    curves: Mapping[str, Sequence[Curve]]
    """The course of each run, by its name: `tracer.analysis.training_curves.course`."""
    differ: Mapping[str, Sequence[object]]
    """Settings beside the seed in which they differ, each with its value by run: there an order is not one of seeds."""

    @property
    def changes(self) -> list[str]:
        """The names of the curves that changed in a run, by their median date."""
        dated = {name: dates for name in self._titles if (dates := self.dates(name)).steps}
        return sorted(dated, key=lambda name: dated[name].median)

    def dates(self, name: str) -> Dates:
        """Of a curve by its name, such as "induction". ValueError where no run holds it."""
        held = self._held(name)
        return Dates(tuple(sorted(c.change.midpoint for c in held.values() if c.change)), len(held))

    def before(self, one: str, other: str) -> Precedence:
        """In how many runs the change of `one` came before that of `other`, with its exact interval and p."""
        self._held(one), self._held(other)
        return precedence(one, other, list(self.curves.values()))

    def spread(self, name: str) -> Spread:
        """Of a curve over the runs that hold it, with the peak of its variance. ValueError where no run does."""
        return spread(list(self._held(name).values()))

    @property
    def table(self) -> xr.Dataset:
        """Variables [change run]: `date`, its 95 % interval `low` to `high` (nan without one), and the `head`."""
        import xarray as xr

        names = [name for name in self._titles if any(c.name == name for of in self.curves.values() for c in of)]
        shape = len(names), len(self.curves)
        dates = {key: np.full(shape, np.nan) for key in ("date", "low", "high")}
        heads = np.full(shape, "", dtype=object)
        for column, of in enumerate(self.curves.values()):
            for curve in of:
                row = names.index(curve.name)
                heads[row, column] = _heads(curve)
                if change := curve.change:
                    for key, step in (("date", change.midpoint), ("low", change.low), ("high", change.high)):
                        dates[key][row, column] = step
        held = {key: (("change", "run"), of) for key, of in (*dates.items(), ("head", heads.astype(str)))}
        return xr.Dataset(held, {"change": names, "run": list(self.curves)})

    @property
    def _titles(self) -> dict[str, str]:
        """Of every curve that a run holds, by name and in the order of `NAMES`."""
        held = {curve.name: curve.title for of in self.curves.values() for curve in of}
        return {name: held[name] for name in (*NAMES, *held) if name in held}

    def _held(self, name: str) -> dict[str, Curve]:
        held = {run: curve for run, of in self.curves.items() for curve in of if curve.name == name}
        if not held:
            raise ValueError(f"no run holds a curve {name!r}; they hold {', '.join(self._titles)}")
        return held

    def __str__(self) -> str:
        n = len(self.curves)
        lines = [f"{n} runs: {', '.join(self.curves)}"]
        if self.differ:
            lines.append(f"They differ in {', '.join(self.differ)}: what follows is not of seeds alone.")
        rows = [("change", "dated", "median", "95 % interval", "from first to last", "the runs part most at")]
        for name in self.changes:
            dates, apart = self.dates(name), self.spread(name)
            sure = "-" if dates.interval is None else "{:,} to {:,}".format(*dates.interval)
            at = apart.note if apart.peak is None else f"{apart.peak:,} ({apart.low:,} to {apart.high:,})"
            span = f"{dates.steps[0]:,} to {dates.steps[-1]:,}"
            rows.append((self._titles[name], f"{len(dates.steps)} of {n}", f"{dates.median:,.0f}", sure, span, at))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        for one, other in LINKS:
            if {one, other} <= {*self._titles} and (found := self.before(one, other)).known:
                low, high = (f"{share:.0%}".removesuffix("%") for share in found.interval)
                rest = f"; not known in {found.unknown}" if found.unknown else ""
                lines.append(
                    f"{self._titles[one]} before {self._titles[other]}: {found.before} of {found.known} ({low} to "
                    f"{high} %), p = {found.p(len(LINKS)):.2g} of {len(LINKS)} orders, "
                    f"{least_p(found.known, len(LINKS)):.2g} at best of so many runs{rest}"
                )
        return "\n".join(lines)


def seeds(runs: Iterable[Run | str | Path], *, composition: bool = False) -> Seeds:
    """Runs that differ in their seed, laid together: dates, orders and spreads of all their changes.

    `runs` are at least two, each as `open_run` takes it or opened. `composition` reads the weights of every snapshot
    for the curve of K-composition, which costs seconds a run; without it only traces are read. Settings in which the
    runs differ beside the seed are told, not refused. ValueError for one run, or two of one name.
    """
    opened = [run if isinstance(run, Run) else open_run(run) for run in runs]
    names = [run.name for run in opened]
    if len(opened) < 2:
        raise ValueError(f"seeds are at least two runs, not {len(opened)}: seeds(['toy-0', 'toy-1', 'toy-2'])")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"each run counts once, but these are named twice: {', '.join(twice)}")
    differ = differences([settings(run) for run in opened])
    curves = {run.name: training_curves.course(run.trace, _reads(run) if composition else None) for run in opened}
    return Seeds(curves, {name: values for name, values in differ.items() if name != "seed"})


def _reads(run: Run) -> Reads | None:
    if not training_curves.readable(run):
        return None
    read = dict(training_curves.compositions(run, run.steps))
    return Reads(list(read), np.stack(list(read.values())), training_curves.by_chance(run)) if read else None


def spread(curves: Sequence[Curve]) -> Spread:
    """The variance of one curve over runs at the steps that all of them recorded, and its peak."""
    steps = functools.reduce(np.intersect1d, (curve.steps for curve in curves))
    values = np.stack([curve.values[np.isin(curve.steps, steps)] for curve in curves])
    n, variance = len(curves), values.var(axis=0, ddof=1) if len(curves) > 1 else np.full(len(steps), np.nan)
    if n < FEWEST:
        note = f"needs {FEWEST} runs"
    elif len(steps) < LEAST_STEPS:
        note = f"the runs share {len(steps)} recorded steps only"
    else:
        note = why_no_peak(variance, n)
    if note:
        return Spread(steps, variance, None, None, None, note)
    without = [int(steps[np.delete(values, i, axis=0).var(axis=0, ddof=1).argmax()]) for i in range(n)]
    return Spread(steps, variance, int(steps[variance.argmax()]), min(without), max(without), "")


def why_no_peak(variance: ArrayLike, runs: int) -> str:
    """Why the largest of variances [step] over so many runs is no peak; empty where it is one. See 3. above."""
    from scipy.special import chdtri

    variance = np.asarray(variance, float)
    top = int(variance.argmax())
    least = chdtri(runs - 1, LEVEL / variance.size) / chdtri(runs - 1, 0.5)
    if not variance[top] > least * np.median(variance):
        return "no step stands out"
    before, after = (side.min(initial=np.inf) <= variance[top] / 2 for side in (variance[:top], variance[top:]))
    return "" if before and after else "they part and stay apart" if before else "apart from the start"


def _heads(curve: Curve) -> str:
    return " → ".join(f"L{layer}H{head}" for layer, head in curve.heads)
