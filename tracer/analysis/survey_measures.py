"""Measures of a user's in a survey: of the rows that it looks at, sums whose means are those of the corpus."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor

from tracer.heads.call import AttentionCall
from tracer.heads.own_measures import Measures, OnProbe, OwnMeasures, given
from tracer.measures.described import described
from tracer.measures.measure import HEAD, SE
from tracer.measures.own_names import why_no_name
from tracer.store.trace_layout import NOWHERE

Arrays = dict[str, np.ndarray]
OWN = "own:"
PARTS = ("sum", "squared", "by_looks", "looks", "looks_squared")
"""Over rows: of a row's sum s of the measure, of s², of s times the n looks that had a number, of n, and of n²."""
TAKEN = {"sink", "sharpest", "mass", "n_looks", "distance", "strongest", "kept"}
"""What a survey calls its own; what else it holds ends in one of ENDS, or is called what no measure may be called."""
ENDS = ("_strongest", "_kept")


class OwnSums:
    """The measures that one survey is asked for."""

    def __init__(self, measures: Measures, say: Callable[[str], None]) -> None:
        self.all = given(measures)
        for one in self.all:
            if (name := one.row.name) in TAKEN or name.endswith(ENDS):
                raise ValueError(f"measures: a survey has numbers called {name}: give the function another name")
        self.of = OwnMeasures(self.all, say)
        self.ask = OnProbe(self.all, self.of)

    def add(
        self, into: Arrays, call: AttentionCall, at: Int[Tensor, " rows"], tokens: Int[Tensor, "batch pos"]
    ) -> None:
        """The looks from positions `at` of some sequences; `into`: the arrays of this call's heads."""
        if not self.all:
            return
        block = call.row_block(at, tokens)
        sees = block.lse != float("-inf")
        for name, values in self.ask(block).items():
            there = (sees & ~values.isnan()).cpu()
            row = values.cpu().double().where(there, 0).sum(-1)
            looks = there.double().sum(-1)
            sums = (row, row**2, row * looks, looks, looks**2)
            for part, new in zip(PARTS, sums, strict=True):
                into[_key(name, part)] += new.sum(0).numpy()

    def drop(self, found: Arrays) -> None:
        """One that went wrong is nan from then on: a mean of what was read before says it of the whole corpus."""
        for name in self.of.lost:
            for part in PARTS:
                found[_key(name, part)][...] = np.nan

    def told(self, corpus: str) -> str:
        """What is said of each, as it travels in the file."""
        return json.dumps({one.row.name: one.row.attributes(NOWHERE) | {"probe": corpus} for one in self.all})


def empty(names: Iterable[str], shape: tuple[int, int]) -> Arrays:
    return {_key(name, part): np.zeros(shape) for name in names for part in PARTS}


def names_in(found: Arrays) -> list[str]:
    """Of the measures of a user's that a survey holds."""
    names = [key[len(OWN) : -len(":sum")] for key in found if key.startswith(OWN) and key.endswith(":sum")]
    return [name for name in names if not why_no_name(name)]


def variables(found: Arrays, rows: int, told: str) -> dict[str, tuple[tuple[str, str], np.ndarray, dict[str, Any]]]:
    """The mean over the looks that had a number, its standard error over rows, and what is said of it."""
    said, into = _said(told), {}
    for name in names_in(found):
        total, squared, by_looks, looks, looks_squared = (found[_key(name, part)] for part in PARTS)
        mean = total / np.where(looks > 0, looks, np.nan)
        if np.isnan(looks).all():
            continue
        row = described(name, HEAD, said[name] if isinstance(said.get(name), dict) else {})
        into[name] = ("layer", "head"), mean, row.attributes(NOWHERE)
        into[name + SE] = ("layer", "head"), ratio_error(mean, looks, squared, by_looks, looks_squared, rows), {}
    return into


def _said(told: str) -> dict[str, Any]:
    """By name; a file may come from anywhere."""
    try:
        said = json.loads(told)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _key(name: str, part: str) -> str:
    return f"{OWN}{name}:{part}"


def ratio_error(
    mean: np.ndarray, looks: np.ndarray, squared: np.ndarray, by_looks: np.ndarray, looks_squared: np.ndarray, rows: int
) -> np.ndarray:
    """Standard error of a sum over rows divided by their looks, from how the rows differ; nan of one row.

    Source: Cochran 1977, section 6.4.
    """
    left = squared - 2 * mean * by_looks + mean**2 * looks_squared
    few = rows / (rows - 1) if rows > 1 else np.nan
    return np.sqrt(np.maximum(left, 0) * few) / np.where(looks > 0, looks, np.nan)
