"""How far runs of one seed drift apart on other machines: `python -m benchmarks.drift` writes it into docs/specimens.*.

torch sums in another order with other vector instructions and with other numbers of threads, and so does the machine of
somebody else. Each way is a process of its own, because torch chooses its kernels once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from tracer.specimens.system_figures import Outcome, outcome
from tracer.specimens.table_parts import markdown_table, plain
from tracer.specimens.tutorials import TUTORIALS
from tracer.store import open_run

DOCS = Path(__file__).parents[1] / "docs"
SPECIMEN = "single-head"
KERNELS = ("default", "avx2", "avx512")
"""Of ATEN_CPU_CAPABILITY, the widest last: a CPU runs no wider ones than its own."""
START, END = "## Machines\n\n", "\n## Time\n"
NOISE = TUTORIALS["many-heads"].paper.claims[0].noise


@dataclass(frozen=True)
class Drift:
    """The end of one specimen, seed 0, trained with the kernels of one kind of CPU."""

    kernels: str
    """ATEN_CPU_CAPABILITY: the vector instructions that torch sums with."""
    threads: int
    name: str
    outcome: Outcome


def ways(widest: str) -> list[tuple[str, int]]:
    """(kernels, threads) that a CPU of this capability can train with; its widest kernels by two threads as well."""
    there = KERNELS[: KERNELS.index(widest) + 1] if widest in KERNELS else KERNELS[:1]
    return [*((kernels, 1) for kernels in there), (there[-1], 2)]


def drift_said(found: Sequence[Drift]) -> str:
    """How far runs of one seed end apart on other machines: a sentence and a table."""
    ends: dict[str, list[float]] = {
        "held-out loss": [one.outcome.loss for one in found], "entropy": [one.outcome.entropy_end for one in found],
        "attention on the token itself": [one.outcome.own_token for one in found],
    }  # fmt: skip
    apart = {what: max(values) - min(values) for what, values in ends.items()}
    steps, names = found[0].outcome.step, ", ".join(f"`{name}`" for name in dict.fromkeys(one.name for one in found))
    rows = [
        (one.kernels, str(one.threads), *(f"{values[i]:.5f}" for values in ends.values()))
        for i, one in enumerate(found)
    ]
    return (
        f"One seed does not give the same run to the last digit on every machine: torch adds up in another order with\n"
        f"other vector instructions and another number of threads. Seed 0 of {names}, trained {len(found)} times for\n"
        f"{steps:,} steps with the kernels of {len({one.kernels for one in found})} kinds of CPU, ends with held-out "
        f"losses {apart['held-out loss']:.4f} nats apart,\nentropies {apart['entropy']:.4f} nats apart and attention "
        f"on the token itself {apart['attention on the token itself']:.4f} apart. Two losses\ncount as different from "
        f"{NOISE:.2f} nats on.\n\n"
    ) + markdown_table(("kernels", "threads", *ends), rows)


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


def main(runs: Path) -> None:
    found = [measured(runs, *way) for way in ways(torch.backends.cpu.get_cpu_capability().lower())]
    kept = plain({"drift": [asdict(one) for one in found]})
    (DOCS / "specimens.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    before, _, after = (DOCS / "specimens.md").read_text().partition(END)
    before = before.partition(START)[0].rstrip("\n") + "\n\n"
    (DOCS / "specimens.md").write_text(before + START + drift_said(found) + END + after)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else directory))
