"""A stretch of a training again: every step recorded, equal to the bit, and said where it is not.

What the first tier leaves.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.test_kept_states import tiny
from tests.training.test_replay import parent  # noqa: F401
from tracer.store import Run, open_run
from tracer.training import loop
from tracer.training.replay import replay, said


def test_a_training_that_diverged_diverges_again(tmp_path: Path) -> None:
    config = tiny(tmp_path / "blown", 14)
    run = loop.train(replace(config, optim=replace(config.optim, lr=1e12)), quiet=True)
    step = run.meta["divergence"]["step"]
    assert run.status == "diverged" and step < 14
    again = replay(run, 0, step, name=str(tmp_path / "again"), quiet=True)
    assert again.meta["divergence"]["step"] == again.meta["replay"]["diverged"] == step
    assert said(again) == f"diverged at step {step}, as blown did"
    assert again.trace.step.values.tolist() == list(range(step))


def test_snapshots_and_records_may_be_sparser_or_denser(parent: Run, tmp_path: Path) -> None:
    again = replay(parent, 4, 13, 3, str(tmp_path / "again"), quiet=True, snapshot_every=2)
    assert again.steps == [0, 2, 4, 6, 8, 10, 12, 14]
    assert again.trace.step.values.tolist() == [0, 2, 4, 6, 8, 9, 10, 12, 14]
    assert again.meta["replay"]["compared"] == [4, 8, 12, 14] and again.meta["replay"]["parts"] is None


def test_a_replay_goes_where_it_is_told_and_replaces_nothing(parent: Run, tmp_path: Path) -> None:
    there = str(tmp_path / "again")
    replay(parent, 6, 7, name=there, quiet=True)
    with pytest.raises(ValueError, match="already holds a run"):
        replay(parent, 6, 7, name=there, quiet=True)
    assert replay(parent, 4, 7, name=there, quiet=True, overwrite=True).meta["replay"]["first"] == 4
    with pytest.raises(ValueError, match="every and snapshot_every count steps"):
        replay(open_run(parent.dir), 6, 7, every=0, quiet=True)
