"""What a function of a paper's claim raised, or gave that is no answer: in words, with the function and its file."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tracer.specimens.paper import SeedRuns

LONGEST = 240
"""Characters of an error's own words."""
POINTS = "(x, y) by name, two lists of one length, is asked for"


class _NoAnswer(TypeError):
    """A function returned, but nothing that can be used."""


def number(figure: Callable[[SeedRuns], float], runs: SeedRuns) -> float:
    """What it gives of these runs; TypeError where that is no number."""
    value = figure(runs)
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise _NoAnswer(f"{_named(figure)} gives {value!r:.60}, which is no number") from error


def sentence(too_small: Callable[[SeedRuns], str], why: object) -> str:
    """What `too_small` gave; TypeError where that is no text."""
    if not isinstance(why, str):
        raise _NoAnswer(f"{_named(too_small)} gives {why!r:.60}: a sentence that says why, or '' where it can be asked")
    return why


def points(curves: Callable[[SeedRuns], Mapping[str, tuple[Any, Any]]], runs: SeedRuns) -> dict[str, np.ndarray]:
    """What it gives of these runs, [axis point] by name; TypeError where that is not two lists of one length each."""
    given = curves(runs)
    try:
        found = {str(name): np.array([np.asarray(x, float), np.asarray(y, float)]) for name, (x, y) in given.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise _NoAnswer(f"{_named(curves)} gives {given!r:.60}: {POINTS}") from error
    if wrong := [name for name, one in found.items() if one.ndim != 2]:
        raise _NoAnswer(f"{_named(curves)} gives {wrong[0]!r} no list of numbers: {POINTS}")
    return found


def raised(asked: str, error: Exception) -> str:
    """Which function raised what: the innermost of those that lie beside the one that was `asked`."""
    said = " ".join(str(error).split())
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]} …"
    if isinstance(error, _NoAnswer):
        return f"{asked}: {said}"
    ours = Path(__file__).parent
    frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).parent != ours]
    beside = [one for one in frames if Path(one.filename).parent == Path(frames[0].filename).parent]
    what = f"{type(error).__name__}: {said}".rstrip(": ")
    where = _place(beside[-1].name, beside[-1].filename, beside[-1].lineno) if beside else "a function without a file"
    return f"{asked}: {where} raised {what}"


def _named(function: Callable[..., object]) -> str:
    code = getattr(function, "__code__", None)
    if code is None:
        return f"{type(function).__name__} object"
    return _place(code.co_name, code.co_filename, code.co_firstlineno)


def _place(function: str, file: str, line: int | None) -> str:
    called = "a lambda" if function == "<lambda>" else f"{function}()"
    return f"{called} in {Path(file).name}, line {line},"
