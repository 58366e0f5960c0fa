"""A stretch of a training again: every step recorded, equal to the bit, and said where it is not."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.training.test_kept_states import tiny
from tracer.config import RecordConfig
from tracer.files.sealed import pack
from tracer.heads.own_measures import measure
from tracer.heads.row_block import RowBlock
from tracer.store import Run
from tracer.store.check import check
from tracer.store.layout import snapshot_path
from tracer.store.snapshots import load_tensors
from tracer.store.stretch import stretch
from tracer.training import loop
from tracer.training.probe_recorder import record_steps
from tracer.training.replay import replay, said


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """14 updates, a snapshot every fourth, a state every fifth."""
    config = tiny(tmp_path_factory.mktemp("runs") / "parent", 14, state_every=5)
    return loop.train(config, quiet=True)


@pytest.fixture(scope="module")
def whole(parent: Run) -> Run:
    """The same training with every step recorded from its beginning."""
    record = replace(parent.config.record, every=1)
    return loop.train(replace(parent.config, record=record, run=str(parent.dir.parent / "whole")), quiet=True)


@measure
def on_first(rows: RowBlock):
    return rows.pattern[..., 0]


def test_what_was_not_recorded_is_had_to_the_bit(parent: Run, whole: Run, tmp_path: Path) -> None:
    again = replay(parent, 6, 7, name=str(tmp_path / "again"), quiet=True, measures=[on_first])
    assert again.meta["parent"] == {"run": "parent", "step": 5, "optimizer": "continued"}
    found, every = again.trace, whole.trace
    assert found.step.values.tolist() == [5, 6, 7, 8] and 6 not in parent.trace.step.values
    shared = [name for name in every.variables if name in found and "step" in every[name].dims]
    of_clock = {"step_ms", "wall_time", "tokens_per_second", "icl_score"}  # the last is taken at an end of a run
    for name in {*shared} - of_clock:
        np.testing.assert_array_equal(found[name].sel(step=[6, 7]), every[name].sel(step=[6, 7]), name)
    assert {"induction", "head_grad_norm", "update_ratio", "train_loss", "max_logit"} <= {*shared}
    np.testing.assert_allclose(found.on_first, found.first_token, 1e-5)
    facts = {"run": "parent", "first": 6, "last": 7, "every": 1, "compared": [8], "parts": None, "apart": 0.0}
    facts |= {"diverged": None, "created": parent.meta["created"]}
    assert again.meta["replay"] == facts and said(again) == "equal to parent to the bit at step 8"
    assert not check(again.dir).damaged and again.status == "finished"


def test_weights_that_part_are_said_with_step_and_size(parent: Run, tmp_path: Path) -> None:
    """By another hand the run says another rate than it was trained with."""
    other = shutil.copytree(parent.dir, tmp_path / "other")
    meta = json.loads((other / "run.json").read_text())
    meta["config"]["optim"]["lr"] *= 2
    (other / "run.json").write_text(json.dumps(meta))
    again = replay(other, 6, 10, name=str(tmp_path / "again"), quiet=True)
    facts = again.meta["replay"]
    ours, theirs = (run.model(8).state_dict() for run in (again, parent))  # pyrefly: ignore[missing-attribute]
    largest = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
    assert facts["parts"] == 8 and facts["apart"] == pytest.approx(largest, rel=1e-6) and largest > 1e-4
    assert said(again).startswith("parts from other at step 8, where weights are up to 0.")


@pytest.mark.parametrize(("value", "apart"), [(1e-3, 1e-3), (math.nan, 0.0), (math.inf, 0.0)])
def test_one_weight_that_differs_is_seen(parent: Run, tmp_path: Path, value: float, apart: float) -> None:
    other = Run(shutil.copytree(parent.dir, tmp_path / "other"))
    weights = load_tensors(path := snapshot_path(other.dir, 8))
    weights["embed.W_E"][3, 2] += value
    path.write_bytes(pack(weights))
    facts = replay(other, 6, 10, name=str(tmp_path / "again"), quiet=True).meta["replay"]
    assert facts["parts"] == 8 and facts["apart"] == pytest.approx(apart, rel=1e-2)


def test_where_it_begins_and_how_far_it_goes(parent: Run, tmp_path: Path) -> None:
    found = [stretch(parent, first, last) for first, last in ((0, 1), (5, 8), (9, 13))]
    assert [(one.start, one.stop) for one in found] == [(0, 4), (5, 8), (5, 14)]
    bare = Run(shutil.copytree(parent.dir, tmp_path / "bare"))
    shutil.rmtree(bare.dir / "states")
    assert (stretch(bare, 5, 8).start, stretch(bare, 5, 8).stop) == (0, 8)
    assert "8 updates from the beginning of the run, about 4 records" in stretch(bare, 5, 8).cost(1)
    again = replay(bare, 5, 8, name=str(tmp_path / "from-0"), quiet=True)
    assert again.meta["replay"]["parts"] is None and again.meta["replay"]["compared"] == [4, 8]
    assert again.trace.step.values.tolist() == [0, 4, 5, 6, 7, 8]
    fork = loop.fork(parent, 5, replace(parent.config, run=str(tmp_path / "fork"), steps=12), quiet=True)
    shutil.rmtree(fork.dir / "states")
    with pytest.raises(ValueError, match=r"keeps no state at or before step 6, and went on with the optimizer of par"):
        replay(fork, 6, 8, quiet=True)


@pytest.mark.parametrize(("first", "last"), [(8, 8), (9, 8), (-1, 8), (8, 15)])
def test_steps_that_there_were_not_are_refused(parent: Run, first: int, last: int) -> None:
    with pytest.raises(ValueError, match=rf"parent was trained from step 0 to 14: .* 0:14 \(here {first}:{last}\)"):
        replay(parent, first, last, quiet=True)


def test_its_cost_is_said_beforehand(parent: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = stretch(parent, 6, 13)
    cost = parent.meta["cost"]
    assert part.seconds == pytest.approx(cost["training_seconds"] * 9 / 14)
    assert part.cost(2).startswith(
        "parent, steps 6 to 13: 9 updates from the kept state of step 5, about 5 records; ab"
    )
    replay(parent, 6, 7, name=str(tmp_path / "again"))
    told = capsys.readouterr().out
    assert told.index("3 updates from the kept state of step 5") < told.index("equal to parent to the bit at step 8")


def test_nothing_is_recorded_before_it_shall_begin(parent: Run) -> None:
    record = RecordConfig(every=3, begin=6)
    assert record_steps(replace(parent.config, record=record, steps=14), [0, 4]) == [0, 4, 6, 9, 12, 14]
    assert record_steps(replace(parent.config, record=replace(record, begin=0)), []) == [0, 1, 2, 3, 6, 9, 12, 14]
    with pytest.raises(ValueError, match=r"record\.begin=-1 must not be negative"):
        RecordConfig(begin=-1)


def test_no_tracker_of_the_run_is_told_again(parent: Run, tmp_path: Path) -> None:
    other = shutil.copytree(parent.dir, tmp_path / "other")
    meta = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**meta, "track": ["nowhere"]}))
    assert replay(other, 6, 7, name=str(tmp_path / "again"), quiet=True).meta["track"] == []
    with pytest.raises(ValueError, match="nowhere"):
        loop.fork(other, 5, replace(parent.config, run=str(tmp_path / "fork")), quiet=True)
