"""The few sequences that every record is measured on: the same in all processes, and in jobs that go on with a run."""

from __future__ import annotations

import math
from pathlib import Path

from torch import nn

from tracer.hooks.inputs import Inputs, batch_axis_first
from tracer.store import open_run
from tracer.watching.ranks import Ranks, data_parallel


def kept(model: nn.Module, inputs: Inputs, most: int, ranks: Ranks, begun: Path | None) -> Inputs:
    """Of rank 0's first batch a sixteenth, and `most` at most; or those of the run that is gone on with."""
    batch = ranks.first(inputs.batch or 1) * data_parallel(model, ranks.world)
    if batch_axis_first(model):
        batch = max(1, min(most, math.ceil(batch / 16)))
    inputs = inputs.rows(batch)
    if begun is not None and ranks.rank == 0:
        inputs = inputs.restored(open_run(begun).probe())
    return inputs.restored(ranks.first(inputs.tensors()))
