"""`python -m tests.zoo [names]`: train the animals, ask `tracer.diagnose` about each, print a table and the rates.

A sick animal is "named" where the kind or the title of a finding holds one of its words, "hinted at" where only the
evidence does, "noticed" where the findings speak of something else. Advice does not count. A healthy one is "accused"
where it has any finding. Findings have two severities, "bad" and "watch"; the rates are printed for both together and
for "bad" alone, of the first zoo (`sick` and `healthy`) and of the second (`again`). A warning of the recorder is
printed too: it is no finding, but tells whoever reads it. The exit status is 1 where an animal is not what it is
declared to be.
"""

import argparse
import importlib
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import tracer
from tests.zoo import ZOO, Animal

BOTH = ("bad", "watch")
ZOOS = (("sick", "healthy"), ("again",))
"""The rooms of each zoo: each zoo is by another author, and has rates of its own."""


@dataclass(frozen=True)
class Answer:
    """What is said of one animal: by its own assertions, the recorder's warnings and the diagnosis."""

    animal: Animal
    findings: Sequence[Any]
    told: Sequence[str]
    """What the recorder warned of."""
    refuted: str | None
    seconds: float

    def verdict(self, severities: Sequence[str] = BOTH) -> str:
        """In a word or two, by the findings of these severities alone."""
        findings = [one for one in self.findings if one.severity in severities]
        if self.refuted:
            return "not as declared"
        if not self.animal.sick:
            return "accused" if findings else "clear"
        if word := self._word(f"{one.kind} {one.title}" for one in findings):
            return f"named: {word}"
        if word := self._word(one.evidence for one in findings):
            return f"hinted at: {word}"
        return "noticed" if findings else "missed"

    def _word(self, texts: Iterable[str]) -> str | None:
        """The first of the animal's words with which a word of the texts begins."""
        said = " ".join(texts).lower()
        return next((word for word in self.animal.words if re.search(rf"(?<![a-z]){re.escape(word)}", said)), None)

    @property
    def said(self) -> str:
        lines = [f"{one.severity}, {one.kind}, step {one.step}: {one.title}" for one in self.findings]
        lines += [f"(recorder warns: {text})" for text in self.told]
        lines += [f"not as declared: {self.refuted}"] if self.refuted else []
        return "\n".join(lines)


def ask(animal: Animal, folder: Path) -> Answer:
    began, refuted = time.monotonic(), None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            animal.train(folder)
        except AssertionError as error:
            refuted = _where(error)
        findings = tracer.diagnose(tracer.open_run(folder)) if folder.exists() else []
    told = [str(one.message) for one in caught if one.category is RuntimeWarning]
    return Answer(animal, findings, told, refuted, time.monotonic() - began)


def _where(error: AssertionError) -> str:
    """The line whose assertion failed, and what the animal measured, in ten parts where it is a list."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next:
        trace = trace.tb_next
    measured: dict[str, Any] = {}
    for name, value in trace.tb_frame.f_locals.items():
        if isinstance(value, float):
            measured[name] = round(value, 3)
        elif isinstance(value, list) and value and isinstance(value[0], float):
            measured[name] = [round(sum(part) / len(part), 2) for part in _tenths(value)]
    return f"line {trace.tb_lineno}: {measured}"


def _tenths(values: list[float]) -> list[list[float]]:
    size = max(1, len(values) // 10)
    return [values[start : start + size] for start in range(0, len(values), size)]


def main() -> int:
    rooms = [room for zoo in ZOOS for room in zoo]
    for room in rooms:
        importlib.import_module(f"tests.zoo.{room}")
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of animals, or of rooms: {', '.join(rooms)}; all, unless told")
    wanted = parser.parse_args().names or rooms
    if unknown := [name for name in wanted if name not in (*ZOO, *rooms)]:
        parser.error(f"no such animal: {', '.join(unknown)}; there are {', '.join(ZOO)}")
    torch.set_num_threads(1)
    answers, console, progress = [], Console(), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="manyeyes-zoo-") as scratch:
        for animal in ZOO.values():
            if animal.name in wanted or animal.room in wanted:
                answers.append(answer := ask(animal, Path(scratch) / animal.name))
                progress.print(f"{animal.name}: {answer.verdict()}, {answer.seconds:.0f} s")
    table = Table("animal", "is", "verdict", "findings")
    for answer in answers:
        sort = "sick" if answer.animal.sick else "healthy"
        table.add_row(answer.animal.name, sort, answer.verdict(), escape(answer.said))
    console.print(table)
    for zoo in ZOOS:
        _print_rates(console, " and ".join(zoo), [one for one in answers if one.animal.room in zoo])
    return any(answer.refuted for answer in answers)


def _print_rates(console: Console, zoo: str, answers: Sequence[Answer]) -> None:
    for sort, verdict in (("sick", "named"), ("sick", "hinted at"), ("sick", "noticed"), ("healthy", "accused")):
        asked = [one for one in answers if one.animal.sick == (sort == "sick") and not one.refuted]
        every, bad = (sum(one.verdict(kinds).startswith(verdict) for one in asked) for kinds in (BOTH, ("bad",)))
        if asked:
            share = f"{every} of {len(asked)} {sort} ones, {every / len(asked):.0%}"
            console.print(f"{zoo}: {verdict}: {share}; by bad findings alone {bad}")


if __name__ == "__main__":
    sys.exit(main())
