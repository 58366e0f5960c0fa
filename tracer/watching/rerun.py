"""A stretch of a recorded loop made again, by the program that made it, with every step of the stretch recorded.

No command of ours can run somebody's script again; in their own rerun the recorder looks at each step of the stretch
and at no other, takes the sequences that the first run kept as its probe, and at the end compares what both kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tracer.store import Run, RunWriter, open_run
from tracer.store.layout import snapshot_path, steps_in
from tracer.store.snapshots import load_tensors


class Rerun:
    """Of `tracer.watch(model, run=..., replay=..., steps=(first, last))`."""

    def __init__(self, replay: str | Path, steps: tuple[int, int] | None) -> None:
        """ValueError where that run was not made by a loop that is watched, or never made these steps."""
        self.parent = open_run(replay)
        if self.parent.can("recipe"):
            raise ValueError(f"{self.parent.name} was trained by us: `tracer replay {self.parent.name} FIRST:LAST`")
        made = self.parent.meta.get("step", 0)
        if steps is None or len(steps) != 2 or not 0 <= steps[0] < steps[1] <= made:
            raise ValueError(
                f"steps={steps} is no stretch of {self.parent.name}, which made {made:,} updates: give the first and "
                f"the last step to look at, as steps=(0, {made})"
            )
        self.first, self.last = steps
        self.pictures = {step for step in steps_in(self.parent.dir / "snapshots") if self.first <= step <= self.last}
        """Where the first run kept weights: these are kept again."""

    def finish(self, directory: Path) -> None:
        """Write what the comparison says into the new run."""
        run = Run(directory)
        facts = {
            "run": self.parent.name, "created": self.parent.meta["created"], "first": self.first, "last": self.last,
            "every": 1, "diverged": (self.parent.meta.get("divergence") or {}).get("step"), **self.compared(run),
        }  # fmt: skip
        RunWriter.reopen(run).close(run.meta["status"], replay=facts)

    def compared(self, run: Run) -> dict[str, Any]:
        """Weights at the steps at which both kept them, and the losses of all updates that both made."""
        both = [step for step in steps_in(run.dir / "snapshots") if step in self.pictures]
        found: dict[str, Any] = {"compared": both, "parts": None, "apart": 0.0, **self._losses(run)}
        for step in both:
            ours, theirs = (load_tensors(snapshot_path(one.dir, step)) for one in (run, self.parent))
            pairs = [(ours.get(name), theirs[name]) for name in theirs]
            if any(mine is None or _bits_differ(mine, other) for mine, other in pairs):
                gaps = [
                    float((mine.double() - other.double()).abs().nan_to_num(0, 0).max())
                    for mine, other in pairs
                    if mine is not None and mine.shape == other.shape and mine.numel()
                ]
                return found | {"parts": step, "apart": max(gaps, default=0.0)}
        return found

    def _losses(self, run: Run) -> dict[str, int | None]:
        """How many losses of the training both have, and the first update where these differ."""
        ours, theirs = run.updates, self.parent.updates
        if ours is None or theirs is None:
            return {"losses": 0, "losses_part": None}
        mine, others = (one["train_loss"].dropna("step").to_series() for one in (ours, theirs))
        both = mine.index.intersection(others.index)
        differ = both[(mine[both] != others[both]).to_numpy()]
        return {"losses": len(both), "losses_part": int(differ[0]) if len(differ) else None}


def _bits_differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    return not np.array_equal(one.contiguous().view(torch.uint8).numpy(), other.contiguous().view(torch.uint8).numpy())


def said(facts: dict[str, Any]) -> str:
    """In words, whether what was made again is what was made."""
    run, n = facts["run"], facts["losses"]
    if facts["parts"] is not None:
        return f"weights part from {run} at step {facts['parts']:,}, by up to {facts['apart']:.2g}"
    if facts["losses_part"] is not None:
        return f"losses part from {run} at update {facts['losses_part']:,}: is it the same script, data, seed, machine?"
    if not facts["compared"] and not n:
        return f"nothing could be compared with {run}"
    weights = f"weights at step {', '.join(f'{step:,}' for step in facts['compared'])}" if facts["compared"] else ""
    return f"equal to {run} to the bit: {' and '.join(filter(None, (weights, f'{n:,} losses' if n else '')))}"
