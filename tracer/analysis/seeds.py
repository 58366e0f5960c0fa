"""Runs that differ in their seed, as one thing: when each change came, in which order, and where the seeds part most.

1. Each run has a date of its own for a change, or none: together they are a distribution, of which the median and the
   range are given. The interval of the median is exact whatever the distribution; fewer than six dates have none at
   95 %, and where a run has no date there is none either, since its date may lie beyond the record or be what the
   detector does not find. Source: order statistics (David and Nagaraja 2003, 7.1).
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
from tracer.store.choosing import ABOUT, differences, settings

if TYPE_CHECKING:
    import xarray as xr

ROUNDING = 8 * np.finfo(np.float64).eps
"""Values that are apart by less, as a share of them, are equal."""
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
        """The narrowest pair of dates, as far from either end, that holds the median of all seeds 95 times in 100.

        None where fewer than six runs have a date, or one has none.
        """
        n = len(self.steps)
        outside = 0.0
        found = None
        if n < self.runs:
            return None
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
    earliest: int | None
    latest: int | None
    """The first and the last of this step and those that it would be with one run left out."""
    note: str
    """Why there is no peak; empty where there is one."""


@dataclass(frozen=True)
class Seeds:
    """Runs laid together; printed, it is a table of their changes and one of their orders."""

    curves: Mapping[str, Sequence[Curve]]
    """The course of each run, by its name: `tracer.analysis.training_curves.course`."""
    differ: Mapping[str, Sequence[object]]
    """Settings beside the seed in which they differ, each with its value by run: there an order is not one of seeds."""
    alike: Sequence[str] = ()
    """Runs that are no seeds of their own: copies of one seed, and forks, which began as their parent."""

    @property
    def changes(self) -> list[str]:
        """The names of the curves that changed in a run, by their median date; then of those that part at a peak."""
        dated = {name: dates for name in self._titles if (dates := self.dates(name)).steps}
        peaks = [name for name in self._titles if name not in dated and self.spread(name).peak is not None]
        return [*sorted(dated, key=lambda name: dated[name].median), *peaks]

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
        """Variables [curve run]: `date`, its 95 % interval `low` to `high` (nan without one), and the `head`."""
        import xarray as xr

        names = list(self._titles)
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
        held = {key: (("curve", "run"), of) for key, of in (*dates.items(), ("head", heads.astype(str)))}
        return xr.Dataset(held, {"curve": np.array(names, str), "run": np.array(list(self.curves), str)})

    @property
    def _titles(self) -> dict[str, str]:
        """Of every curve that a run holds, by name and in the order of `NAMES`."""
        held = {curve.name: curve.title for of in self.curves.values() for curve in of}
        return {name: held[name] for name in (*NAMES, *held) if name in held}

    def _held(self, name: str) -> dict[str, Curve]:
        held = {run: curve for run, of in self.curves.items() for curve in of if curve.name == name}
        if not held:
            more = "; it is asked for with composition=True" if name == "composition" else ""
            raise ValueError(f"no run holds a curve {name!r}{more}; they hold {', '.join(self._titles) or 'none'}")
        return held

    def __str__(self) -> str:
        lines = [f"{len(self.curves)} runs: {', '.join(self.curves)}"]
        if self.differ:
            lines.append(f"They differ in {', '.join(self.differ)}: what follows is not of seeds alone.")
        if self.alike:
            lines.append(f"No seeds of their own: {', '.join(self.alike)}. No p and no interval below holds.")
        rows = [("change", "dated", "median", "95 % interval", "from first to last", "runs part most at")]
        rows += [self._row(name) for name in self.changes]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        orders = [self._order(*link) for link in LINKS if {*link} <= {*self._titles}]
        return "\n".join([*lines, *(table if len(rows) > 1 else ["No run changed."]), *filter(None, orders)])

    def _row(self, name: str) -> tuple[str, ...]:
        dates, apart = self.dates(name), self.spread(name)
        sure = "-" if dates.interval is None else "{:,} to {:,}".format(*dates.interval)
        at = apart.note
        if apart.peak is not None:
            at = f"{apart.peak:,} (without one run: {apart.earliest:,} to {apart.latest:,})"
        middle, span = "-", "-"
        if dates.steps:
            middle, span = f"{dates.median:,.0f}", f"{dates.steps[0]:,} to {dates.steps[-1]:,}"
        return self._titles[name], f"{len(dates.steps)} of {dates.runs}", middle, sure, span, at

    def _order(self, one: str, other: str) -> str:
        """What is known of one link, in a line; empty where no run has both changes."""
        found = self.before(one, other)
        rest = [f"not known in {found.unknown}"] if found.unknown else []
        rest += [f"left out: {found.no_circuit}, whose two heads are no circuit"] if found.no_circuit else []
        if found.known:
            low, high = (f"{share:.0%}".removesuffix("%") for share in found.interval)
            best = f"{least_p(found.known, len(LINKS)):.2g} at best of so many runs"
            chance = f"p = {found.p(len(LINKS)):.2g} of {len(LINKS)} orders, {best}"
            rest.insert(0, f"{found.before} of {found.known} ({low} to {high} %), {chance}")
        return f"{self._titles[one]} before {self._titles[other]}: {'; '.join(rest)}" if rest else ""


def seeds(runs: Iterable[Run | str | Path], *, composition: bool = False) -> Seeds:
    """Runs that differ in their seed, laid together: dates, orders and spreads of all their changes.

    `runs` are at least two, each as `open_run` takes it or opened. `composition` reads the weights of every snapshot
    for the curve of K-composition, which costs seconds a run; without it only traces are read. Settings in which the
    runs differ beside the seed, copies of one seed and forks are told, not refused. ValueError for one run, or two of
    one name.
    """
    if isinstance(runs, (str, Path, Run)):
        raise ValueError("seeds are several runs, in a list: seeds(['toy-0', 'toy-1', 'toy-2'])")
    opened = [run if isinstance(run, Run) else open_run(run) for run in runs]
    names = [run.name for run in opened]
    if len(opened) < 2:
        raise ValueError(f"seeds are at least two runs, not {len(opened)}: seeds(['toy-0', 'toy-1', 'toy-2'])")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two runs are called {', '.join(twice)}: name a run once, or rename its directory")
    differ = differences([settings(run) for run in opened])
    curves = {run.name: training_curves.course(run.trace, _reads(run) if composition else None) for run in opened}
    return Seeds(curves, {name: values for name, values in differ.items() if name != "seed"}, no_seeds(opened))


def no_seeds(runs: Sequence[Run]) -> list[str]:
    """Those that are no draw of their own: forks, and of one seed and the same settings all but the first."""
    seen: list[dict[str, object]] = []
    found = []
    for run in runs:
        held = {name: value for name, value in settings(run).items() if name not in ABOUT}
        if run.meta.get("parent") or held in seen:
            found.append(run.name)
        seen.append(held)
    return found


def _reads(run: Run) -> Reads | None:
    if not training_curves.readable(run):
        return None
    try:
        read = dict(training_curves.compositions(run, run.steps))
    except ValueError:  # a damaged tokenizer: the curves of the trace are whole
        return None
    chance = training_curves.by_chance(run, next(iter(read))) if read else 0.0
    return Reads(list(read), np.stack(list(read.values())), chance) if read else None


def spread(curves: Sequence[Curve]) -> Spread:
    """The variance of one curve over runs at the steps that all of them recorded, and its peak."""
    steps = functools.reduce(np.intersect1d, (curve.steps for curve in curves))
    values = np.stack([curve.values[np.isin(curve.steps, steps)] for curve in curves])
    n, variance = len(curves), values.var(axis=0, ddof=1) if len(curves) > 1 else np.full(len(steps), np.nan)
    variance[variance < np.square(ROUNDING * np.abs(values).max(axis=0, initial=0.0))] = 0.0
    if n < FEWEST:
        note = f"needs {FEWEST} runs"
    elif len(steps) < LEAST_STEPS:
        note = f"the runs share {len(steps)} recorded steps only"
    else:
        note = why_no_peak(variance, n)
    if note:
        return Spread(steps, variance, None, None, None, note)
    without = [int(steps[np.delete(values, i, axis=0).var(axis=0, ddof=1).argmax()]) for i in range(n)]
    peak = int(steps[variance.argmax()])
    return Spread(steps, variance, peak, min(peak, *without), max(peak, *without), "")


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
