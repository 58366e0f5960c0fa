"""What a run says that recording it cost."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.recording import STEPS, cost
from benchmarks.truth.attack import Attack

CLOCK = 0.02
"""How far apart two trainings of the same updates may end on a machine that is not quiet, as a share."""
LITTLE = 0.06


def attacks() -> Iterator[Attack]:
    of = cost()
    yield Attack(
        "recording costs what the page says, and little", "Training",
        f"{STEPS} steps of the demo, where records are densest, beside the same updates bare, three "
        "rounds in turn, on this machine as busy as it was",
        f"the run says {of.said:.1%} of the training time, the clock {of.true:.1%}; {LITTLE:.0%} is the most it may be",
        abs(of.said - of.true) <= CLOCK and of.said <= LITTLE,
    )  # fmt: skip
