"""Where rows are looked for, and what leaving them out did to the date of a change, over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracer.analysis.training_curves import best, strongest, warmed_up
from tracer.config.field_docs import fields_in_help
from tracer.measures.aliases import Head
from tracer.measures.change_points import phase_change
from tracer.measures.intervals import student

if TYPE_CHECKING:
    import xarray as xr

    from tracer.store import Run


@fields_in_help
@dataclass(frozen=True)
class Moved:
    """What became of a date without a share of the rows; steps, one of each training run."""

    share: float
    """Per cent of the rows of the stretch."""
    most: tuple[float, ...]
    """Date without the rows that moved the score most, less the date as it was."""
    others: tuple[float, ...]
    """The same without as many at random, a mean over draws."""
    never: int
    """Of all these trainings, those whose score did not get there; the last step counts as their date."""

    @property
    def more(self) -> float:
        """By how much more the first moved the date than the second: the mean over runs."""
        return float(np.mean(np.subtract(self.most, self.others)))

    @property
    def margin(self) -> float:
        """Half of its 95 % interval (Student 1908, paired); nan for one run."""
        apart = np.subtract(self.most, self.others)
        n = len(apart)
        return student(n - 1) * float(np.std(apart, ddof=1)) / n**0.5 if n > 1 else float("nan")


def dates_moved(answers: Sequence[xr.Dataset]) -> list[Moved]:
    """How far dates moved without rows, by share; `answers` of `tracer.stretch_rows`, one a seed, of the same shares.

    ValueError where their shares differ, or a score did not get there as it was, so that nothing can move.
    """
    shares = [tuple(dict.fromkeys(one["share"].values.tolist())) for one in answers]
    if len(set(shares)) != 1:
        raise ValueError(f"answers of the same shares can be laid together, these have {sorted(set(shares))}")
    found = []
    for share in shares[0]:
        if not share:
            continue
        most, others, never = [], [], 0
        for one in answers:
            until, date = float(one.attrs["until"]), one["date"].values
            was = float(date[one["share"].values == 0][0])
            if np.isnan(was):
                raise ValueError(f"{one.attrs['run']}: as it was, the score did not get there")
            here = one["share"].values == share
            first = here & (one["draw"].values < 0)
            never += int(np.isnan(date[here]).sum())
            moved = np.nan_to_num(date, nan=until) - was
            most.append(float(moved[first][0]))
            others.append(float(moved[here & ~first].mean()))
        found.append(Moved(share, tuple(most), tuple(others), never))
    return found


def head_of_run(run: Run, measure: str) -> Head:
    """The head that ends highest; of induction, farthest above its control. ValueError where none does."""
    trace = run.trace
    found = strongest(trace) if measure == "induction" else best(trace[measure].values)
    if found is None:
        raise ValueError(f"no head of {run.name} stands out by {measure}: name one, as L1H2")
    return found


def steps_of_change(run: Run, head: Head, measure: str) -> tuple[int, int]:
    """The records around the change of a head's score. ValueError where none is dated."""
    trace = run.trace
    scores = trace[measure].values
    there = np.isfinite(scores[:, head[0], head[1]])
    steps, values = trace["step"].values[there], scores[there, head[0], head[1]]
    change = phase_change(steps, values, tried=scores[0].size, warmup=warmed_up(trace))
    if change is None:
        raise ValueError(
            f"no change of {measure} of L{head[0]}H{head[1]} is dated in {run.name}: give steps, as 540:664"
        )
    return change.around(steps)
