"""What would have helped: as it was equals the run, each change is judged by the same rule, and nothing is lost.

What the first tier leaves.
"""

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import zarr

from tests.training.test_remedy import sick  # noqa: F401
from tests.trainings import diverging
from tracer.diagnosis.findings import Advice, Finding
from tracer.diagnosis.futures import made_for
from tracer.files.sealed import pack
from tracer.model import Transformer
from tracer.store import Run
from tracer.store.layout import snapshot_path
from tracer.training import loop
from tracer.training.remedy import plan, remedy


def test_where_no_weights_are_kept_the_losses_tell(tmp_path: Path) -> None:
    run = loop.train(diverging(tmp_path / "r"), quiet=True)
    assert run.steps == [0] and run.trace["step"][1] == 1
    losses = zarr.open_array(run.dir / "trace.zarr" / "train_loss", mode="r+")
    losses[1] = np.asarray(losses[1]) + 1e-3
    with pytest.raises(ValueError, match="not had again to the bit: its losses part at step 1. On this machine"):
        remedy(Run(run.dir), tries=("rate",), quiet=True)


def test_a_stretch_that_does_not_show_the_finding_tells_nothing(sick: Run, tmp_path: Path) -> None:
    run = loop.train(diverging(tmp_path / "calm", lr=1e-2), quiet=True)
    finding = Finding("divergence", "bad", "the run diverged", 20, (), "", Advice(), "")
    what = plan(run, finding, tries=("rate",))
    assert (what.start, what.until, [one.name for one in what.tried]) == (0, 30, ["rate"])
    assert what.words().startswith("calm, the run diverged since step 20: from the kept state of step 0 to step 30")
    with pytest.raises(ValueError, match="from step 0 to 30, calm shows no 'the run diverged': the stretch is too"):
        remedy(run, finding, tries=("rate",), quiet=True)
    with pytest.raises(ValueError, match="no divergence was found|nothing was found"):
        remedy(run, "divergence", quiet=True)
    with pytest.raises(ValueError, match="'colder' is no change that can be tried of sick: rate, faster, warmup"):
        plan(sick, tries=("colder",))
    with pytest.raises(ValueError, match="give a later step"):
        plan(sick, until=1)


def test_a_run_that_is_not_had_again_has_no_futures(tmp_path: Path) -> None:
    """Weights that somebody changed stand for another machine, on which sums come out otherwise."""
    config = diverging(tmp_path / "r")
    run = loop.train(replace(config, record=replace(config.record, snapshot_every=1)), quiet=True)
    step = run.steps[1]
    weights = cast(Transformer, run.model(step)).state_dict()
    weights["embed.W_E"][0, 0] += 0.5
    snapshot_path(run.dir, step).write_bytes(pack(weights))
    with pytest.raises(ValueError, match=rf"not had again to the bit: weights part at step {step}, by up to 0\.5"):
        remedy(run, tries=("rate",), quiet=True)
    assert [one.dir.name for one in made_for(run, "divergence")] == ["r-divergence-as-it-was"]
