"""Draw mutants, run the tests that reach them, and write docs/mutants.json and its section of docs/truth.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

import tyro

from benchmarks.mutants import reach, report
from benchmarks.mutants.forks import Slot
from benchmarks.mutants.house import ROOMS, House
from benchmarks.mutants.run import run
from benchmarks.truth.attack import page


@dataclass(frozen=True)
class Options:
    rooms: tuple[str, ...] = tuple(ROOMS)
    """Of which mutants are drawn."""
    count: int = 40
    """Mutants of each room."""
    seed: str = ""
    """Instead of the commit's hash."""
    jobs: int = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    """Processes at once."""
    lines: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only record which lines each test runs."""


def say(text: str) -> None:
    print(text, flush=True)


def main(options: Options) -> None:
    house = House()
    if unknown := set(options.rooms) - set(ROOMS):
        sys.exit(f"there is no room {', '.join(sorted(unknown))}; there are: {', '.join(ROOMS)}")
    git = ["git", "-C", str(house.root), "rev-parse", "HEAD"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    with ExitStack() as stack:
        slots = [stack.enter_context(Slot(house, number)) for number in range(options.jobs)]
        reach.make(house, slots, say)
        if options.lines:
            return
        judged = run(house, list(options.rooms), options.count, options.seed or commit, slots, say)
    docs = house.root / "docs"
    report.write(docs, report.report(judged, commit, options.seed or commit, report.entries()))
    areas, mutants = (json.loads((docs / name).read_text()) for name in ("truth.json", "mutants.json"))
    (docs / "truth.md").write_text(page(areas, mutants))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
