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

from benchmarks.measure import in_turn, ratio
from tracer.config import TrainConfig
from tracer.presets import preset
from tracer.training.loop import forward_backward, prepare, train, update

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


def main() -> None:
    times, share = compare(replace(preset("demo").config, steps=STEPS, device="cpu"), rounds=3)
    print(f"\nrecording while the demo trains, {STEPS} steps, three rounds in turn")
    print(f"recorded / bare loop, samples and set-up included: {ratio(times['recorded'], times['bare']):.3f}")
    print(f"share that the run itself reports for recording: {share:.1%}")
