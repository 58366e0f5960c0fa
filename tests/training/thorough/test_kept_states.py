"""Kept states: weights with the optimiser's state, from which any part of a training can be had again to the bit.

What the first tier leaves.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.training.test_kept_states import equal, parent, run, tiny  # noqa: F401
from tracer.store import Run
from tracer.store.check import check
from tracer.training import loop


def test_a_longer_run_goes_on_keeping(run: Run, tmp_path: Path) -> None:
    """What a job kept that was killed after its resume point is taken back, and made anew."""
    for later in (9, 12):
        shutil.copy(run.dir / "states" / "000006.safetensors", run.dir / "states" / f"{later:06d}.safetensors")
    longer = loop.resume(run.dir, steps=14, quiet=True)
    assert longer.meta["state_steps"] == [0, 2, 4, 6, 8, 10, 12] and longer.state_steps == [0, 2, 4, 6, 8, 10, 12, 14]
    whole = loop.train(tiny(tmp_path / "whole", steps=14), quiet=True)
    names = [path.name for path in (whole.dir / "states").iterdir()]
    assert len(names) == 7
    assert all((longer.dir / "states" / n).read_bytes() == (whole.dir / "states" / n).read_bytes() for n in names)
    assert check(longer.dir).damaged == {}


def test_a_run_of_before_says_that_it_keeps_none(run: Run) -> None:
    """Resumed, it keeps some from there on."""
    shutil.rmtree(run.dir / "states")
    told = json.loads((run.dir / "run.json").read_text())
    del told["state_steps"], told["config"]["record"]["state_every"], told["config"]["record"]["state_mb"]
    del told["digests"]["run.json"]
    (run.dir / "run.json").write_text(json.dumps(told))
    assert run.why_not("states") == "This run was made before states were kept" and check(run.dir).damaged == {}
    assert run.state_steps == [8] and equal(run.state(8), run.resume_state())
    with pytest.raises(ValueError, match=r"r has no state of step 4: the nearest is 8"):
        run.state(4)
    longer = loop.resume(run.dir, steps=101, quiet=True)
    assert longer.state_steps == [100, 101] and longer.can("states") and check(run.dir).damaged == {}
