"""How far runs of one seed drift apart on other machines: `python -m benchmarks.drift` writes it into docs/specimens.*.

torch sums in another order with other vector instructions and with other numbers of threads, and so does the machine of
somebody else. Each way is a process of its own, because torch chooses its kernels once.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tracer.specimens.claims import Outcome, outcome
from tracer.specimens.systems import Check
from tracer.specimens.tables import Drift, as_json, drift_said
from tracer.store import open_run

DOCS = Path(__file__).parents[1] / "docs"
SPECIMEN = "single-head"
WAYS = [("default", 1), ("avx2", 1), ("avx512", 1), ("avx512", 2)]
START, END = "## Machines\n\n", "\n## Time\n"


def measured(runs: Path, kernels: str, threads: int) -> Drift:
    """Train the specimen in small, seed 0, with the kernels of one kind of CPU, if it is not there yet."""
    there = runs / f"{kernels}-{threads}"
    there.mkdir(parents=True, exist_ok=True)
    many = str(threads)
    env = os.environ | {"ATEN_CPU_CAPABILITY": kernels, "OMP_NUM_THREADS": many, "MKL_NUM_THREADS": many}
    subprocess.run([sys.executable, "-m", "tracer", "reproduce", SPECIMEN], cwd=there, env=env, check=False)
    run = open_run(there / "checkpoints" / f"{SPECIMEN}-small")
    if run.status != "finished":
        sys.exit(f"{there} is {run.status}: only ends can be compared; run this again, and it goes on")
    return Drift(kernels, threads, SPECIMEN, outcome(run))


def as_it_was(one: dict[str, Any]) -> Outcome:
    """An outcome as JSON keeps it, where null is not a number."""
    start, end = (math.nan if share is None else share for share in one["apart"])
    return Outcome(**one | {"loss": math.nan if one["loss"] is None else one["loss"], "apart": (start, end)})


def main(runs: Path) -> None:
    found = [measured(runs, *way) for way in WAYS]
    kept = json.loads((DOCS / "specimens.json").read_text())
    seeds = [{name: as_it_was(one) for name, one in outcomes.items()} for outcomes in kept["seeds"]]
    checks = {name: [Check(**check) for check in checks] for name, checks in kept["exercises"].items()}
    (DOCS / "specimens.json").write_text(as_json(seeds, checks, found) + "\n")
    before, _, after = (DOCS / "specimens.md").read_text().partition(END)
    before = before.partition(START)[0].rstrip("\n") + "\n\n"
    (DOCS / "specimens.md").write_text(before + START + drift_said(found) + END + after)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else directory))
