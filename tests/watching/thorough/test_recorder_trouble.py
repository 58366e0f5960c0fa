"""Whatever goes wrong in recording: one warning, and the training is what it would have been.

What the first tier leaves.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray as xr
from torch.distributed.fsdp import fully_shard

import tracer
from tests.watching.loops import batches
from tests.watching.many import Model
from tests.watching.test_recorder_trouble import alone  # noqa: F401
from tracer.store import open_run


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_weights_sharded_over_one_process_are_recorded(here: Path, alone: Any) -> None:
    found = []
    for name in ("plain", "sharded"):
        torch.manual_seed(0)
        model: Any = Model()
        if name == "sharded":
            fully_shard(model, mesh=alone)
        recorder = tracer.watch(model, run=name, every=1)
        ids = torch.randint(0, 20, (8, 17), generator=torch.Generator().manual_seed(1))
        loss = model(ids[:, :-1], ids[:, 1:])[1]
        loss.backward()
        recorder.step(loss)
        recorder.close()
        assert recorder.off is None
        found.append(open_run(name).trace[["entropy", "induction", "grad_norm", "weight_norm", "train_loss"]])
    assert found[0]["entropy"].notnull().any()
    xr.testing.assert_equal(*found)


def test_what_came_after_the_last_record_is_kept_when_a_loop_fails(here: Path, gpt: Callable[..., Any]) -> None:
    model: Any = gpt(dropout=0.0)
    recorder = tracer.watch(model, run="r", every=4)
    for batch in batches(7):
        recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
    recorder.close(ValueError("the loop's own"))
    run = open_run("r")
    assert run.trace["step"].values.tolist() == [0, 1, 2, 4] and run.status == "stopped"
    assert run.updates is not None and run.updates["step"].values.tolist() == [*range(7)]
