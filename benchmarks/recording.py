"""What recording costs: the demo trained with everything recorded, against the same loop with nothing around it.

A record is forward passes without gradients over 16 x 64 tokens of text and 32 x 49 that repeat and, in the same pass,
up to the last block's heads over 16 x 49 of their control; every 100 steps over 40 x 78 of text. That is 3800 tokens
at most against 25 steps of 2048 tokens forward and backward, so its floor is 3800 / (25 * 3 * 2048) = 2.5 % of the
time, plus writing.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from benchmarks.measure import in_turn, ratio
from tracer.config import TrainConfig
from tracer.heads.own_measures import measure
from tracer.heads.row_block import RowBlock
from tracer.presets import preset
from tracer.training.job import forward_backward, prepare, update
from tracer.training.loop import train

STEPS = 300


def compare(
    config: TrainConfig, rounds: int, wait: Callable[[], object] = lambda: None
) -> tuple[dict[str, list[float]], float]:
    """Seconds of each round of "recorded" and "bare", and the share that the run itself reports for recording."""
    shares = []
    with tempfile.TemporaryDirectory() as folder:

        def recorded() -> None:
            run = train(replace(config, run=str(Path(folder) / str(len(shares)))), quiet=True)
            shares.append(run.meta["cost"]["recording_share"])

        def bare() -> None:
            job = prepare(config)
            job.raw.train()
            for step in range(config.steps + 1):
                forward_backward(job, step)
                update(job, step)

        times = in_turn({"recorded": recorded, "bare": bare}, rounds, wait)
    return times, statistics.median(shares)


@measure
def on_nothing(rows: RowBlock) -> Tensor:
    return 1 - rows.pattern.sum(-1)


@measure(probe="repeat")
def spread(rows: RowBlock) -> Tensor:
    return rows.pattern.square().sum(-1)


@measure
def output_norm(rows: RowBlock) -> Tensor:
    return rows.z.norm(dim=-1).transpose(1, 2)


def with_own(config: TrainConfig, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a record, as the run says, of each round with three measures of a user's and without."""
    found: dict[str, list[float]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for kind, times in found.items():
                named = replace(config, run=str(Path(folder) / f"{kind}-{number}"))
                own = (on_nothing, spread, output_norm) if kind == "with" else ()
                times.append(train(named, quiet=True, measures=own).meta["cost"]["recording_ms"])
    return found


def main() -> None:
    times, share = compare(replace(preset("demo").config, steps=STEPS, device="cpu"), rounds=3)
    print(f"\nrecording while the demo trains, {STEPS} steps, three rounds in turn")
    print(f"recorded / bare loop, samples and set-up included: {ratio(times['recorded'], times['bare']):.3f}")
    print(f"share that the run itself reports for recording: {share:.1%}")
    own = with_own(replace(preset("demo").config, steps=STEPS, device="cpu"), rounds=3)
    print(f"a record with three measures of a user's / without: {ratio(own['with'], own['without']):.3f} "
          f"({min(own['with']):.0f} and {min(own['without']):.0f} ms)")  # fmt: skip
