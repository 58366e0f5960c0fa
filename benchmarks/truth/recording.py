"""What recording costs, by the run's own account."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.truth.attack import Attack
from tracer.presets import preset
from tracer.training.loop import train

LITTLE = 0.05
"""Twice what its forward passes alone would cost: benchmarks/recording.py."""


def attacks() -> Iterator[Attack]:
    with tempfile.TemporaryDirectory() as folder:
        run = train(replace(preset("demo").config, run=f"{folder}/demo", device="cpu"), quiet=True)
        cost = run.meta["cost"]
    yield Attack(
        "recording costs little", "Training", "the demo of seed 0, on this machine as busy as it was",
        f"{cost['recording_share']:.1%} of the training time, {cost['recording_ms']:.0f} ms a record; at most "
        f"{LITTLE:.0%} is asked for",
        cost["recording_share"] <= LITTLE,
    )  # fmt: skip
