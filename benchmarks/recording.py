"""What recording costs: the demo trained with everything recorded, against the same loop with nothing around it.

A record is forward passes without gradients over 16 x 64 tokens of text and 32 x 49 that repeat and, in the same pass,
up to the last block's heads over 16 x 49 of their control; every 100 steps over 40 x 78 of text. That is 3800 tokens
at most against 25 steps of 2048 tokens forward and backward, so its floor is 3800 / (25 * 3 * 2048) = 2.5 % of the
time, plus writing.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.measure import in_turn
from tracer.presets import preset
from tracer.training.loop import forward_backward, prepare, train, update

STEPS = 300


@dataclass(frozen=True)
class Cost:
    """Of recording, as a share of the training time without it: medians of the rounds."""

    said: float
    """What the run itself says of it."""
    true: float
    """By how much longer it took than the same updates with nothing around them, sample texts left out."""


def cost(rounds: int = 3) -> Cost:
    """The demo trained for STEPS with everything recorded, and the same loop bare, in turn; set-up left out."""
    config = replace(preset("demo").config, steps=STEPS, device="cpu")
    runs, bares = [], []
    with tempfile.TemporaryDirectory() as folder:

        def recorded() -> None:
            run = train(replace(config, run=str(Path(folder) / str(len(runs)))), quiet=True)
            runs.append(run.meta["cost"])

        def bare() -> None:
            job = prepare(config)
            job.raw.train()
            began = time.perf_counter()
            for step in range(STEPS):
                forward_backward(job, step)
                update(job, step)
            bares.append(time.perf_counter() - began)

        in_turn({"recorded": recorded, "bare": bare}, rounds)
    kept = list(zip(runs, bares, strict=True))[1:]
    return Cost(
        said=statistics.median(run["recording_share"] for run, _ in kept),
        true=statistics.median((run["seconds"] - run["samples_seconds"]) / alone - 1 for run, alone in kept),
    )


def main() -> None:
    of = cost()
    print(f"\nrecording while the demo trains, {STEPS} steps, three rounds in turn with the bare loop")
    print(f"recording takes {of.said:.1%} of the training time as the run says, {of.true:.1%} as the clock says")
