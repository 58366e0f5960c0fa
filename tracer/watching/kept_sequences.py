"""The few sequences that every record is measured on: the same in all processes, and in jobs that go on with a run."""

from __future__ import annotations

import math
from pathlib import Path

from torch import nn

from tracer.hooks.inputs import Inputs, batch_axis_first
from tracer.store import open_run
from tracer.watching.ranks import Ranks, data_parallel

SHARE, MOST = 16, 8
"""Unless told otherwise a sixteenth of the batch is kept, and 8 sequences at most."""


def kept(model: nn.Module, inputs: Inputs, rows: int | None, ranks: Ranks, begun: Path | None) -> Inputs:
    """Of rank 0's first batch so many rows, or all that it has; or those of the run that is gone on with."""
    here = ranks.first(inputs.batch or 1)
    batch = here * data_parallel(model, ranks.world)
    if batch_axis_first(model):
        batch = max(1, min(MOST, math.ceil(batch / SHARE))) if rows is None else min(rows, here)
    inputs = inputs.rows(batch)
    if begun is not None and ranks.rank == 0:
        inputs = inputs.restored(open_run(begun).probe())
    return inputs.restored(ranks.first(inputs.tensors()))
