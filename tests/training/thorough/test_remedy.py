"""What would have helped: as it was equals the run, each change is judged by the same rule, and nothing is lost.

What the first tier leaves.
"""

from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.training.test_remedy import sick  # noqa: F401
from tests.trainings import diverging
from tracer.diagnosis.findings import Advice, Finding
from tracer.store import Run
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
