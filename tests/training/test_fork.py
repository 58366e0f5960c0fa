"""Forks: a new run from a snapshot of another, on the batches that come next there."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiers import quick
from tracer.config import OptimConfig, RecordConfig, TrainConfig
from tracer.model import Transformer
from tracer.presets import preset
from tracer.store import Run
from tracer.training import loop

TOY = preset("induction").config


def tiny(directory: Path, **changes) -> TrainConfig:
    """The toy recipe, smaller and shorter, measured at every step; a snapshot every fourth."""
    record = RecordConfig(every=1, snapshot_every=4, log_every=100, val_rows=4, repeat_rows=8)
    config = replace(TOY, run=str(directory), steps=12, device="cpu", record=record)
    model, data = replace(TOY.model, d_model=16, n_ctx=24), replace(TOY.data, period_max=12)
    return replace(config, **dict[str, Any](model=model, data=data, optim=replace(TOY.optim, batch_size=4)) | changes)


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    return loop.train(tiny(tmp_path_factory.mktemp("runs") / "parent"), quiet=True)


def same_weights(a: Run, b: Run, step: int) -> bool:
    first, second = a.model(step), b.model(step)
    assert isinstance(first, Transformer) and isinstance(second, Transformer)
    return all(torch.equal(x, y) for x, y in zip(first.parameters(), second.parameters(), strict=True))


def test_it_begins_where_the_parent_was(parent, tmp_path):
    config = replace(parent.config, run=str(tmp_path / "child"), optim=replace(parent.config.optim, lr=1e-4))
    child = loop.fork(parent, 4, config, quiet=True)
    assert child.meta["parent"] == {"run": "parent", "step": 4, "optimizer": "fresh"}
    assert child.meta["preset"] == parent.meta["preset"] and child.status == "finished"
    assert child.trace["step"].values.tolist() == list(range(4, 13))
    assert child.steps == child.meta["snapshot_steps"] == [4, 8, 12]
    assert same_weights(child, parent, 4) and not same_weights(child, parent, 8)
    for name in ("train_loss", "repeat_loss", "induction", "grad_norm", "tokens_seen"):  # same weights, same batch
        np.testing.assert_array_equal(child.trace[name].sel(step=4), parent.trace[name].sel(step=4), err_msg=name)
    assert parent.steps == [0, 4, 8, 12] and parent.status == "finished" and parent.meta["parent"] is None


def test_without_optimiser_state_it_is_the_parent_to_the_bit(tmp_path):
    """SGD without momentum remembers nothing, so a fork with the parent's settings repeats the parent."""
    optim = OptimConfig(name="sgd", momentum=0.0, lr=0.1, batch_size=4, warmup=6)
    model = replace(tiny(tmp_path).model, dropout=0.1)
    whole = loop.train(tiny(tmp_path / "whole", optim=optim, model=model), quiet=True)
    child = loop.fork(whole, 8, replace(whole.config, run=str(tmp_path / "child")), quiet=True)
    np.testing.assert_array_equal(child.trace["train_loss"], whole.trace["train_loss"].sel(step=slice(8, None)))
    assert same_weights(child, whole, 12)


@pytest.mark.parametrize("name", quick(["adamw", "muon"], ("muon",)))
def test_from_the_resume_point_the_optimiser_goes_on(tmp_path, name):
    optim = OptimConfig(name=name, lr=0.01, batch_size=4)
    whole = loop.train(tiny(tmp_path / "whole", optim=optim), quiet=True)
    short = loop.train(tiny(tmp_path / "short", optim=optim, steps=8), quiet=True)
    child = loop.fork(short, 8, replace(whole.config, run=str(tmp_path / "child")), quiet=True)
    assert child.meta["parent"]["optimizer"] == "continued"
    np.testing.assert_array_equal(child.trace["train_loss"], whole.trace["train_loss"].sel(step=slice(8, None)))
    assert same_weights(child, whole, 12)


@pytest.mark.parametrize("optim", [{"name": "sgd"}, {"qk_lr_factor": 2.0}])
def test_another_optimiser_starts_fresh(parent, tmp_path, optim):
    config = replace(parent.config, run=str(tmp_path / "c"), steps=13, optim=replace(parent.config.optim, **optim))
    child = loop.fork(parent.dir, 12, config, quiet=True)
    assert child.meta["parent"]["optimizer"] == "fresh" and same_weights(child, parent, 12)


@pytest.mark.parametrize(
    ("step", "changes", "words"),
    [
        (5, {}, r"no snapshot of step 5; the nearest is 4"),
        (12, {}, "steps=12 leaves nothing to train after step 12"),
        (4, {"model": {"n_heads": 8}}, r"keeps the model of parent; this one differs: model.n_heads=8 \(there 4\)"),
        (4, {"model": {"norm": "layer", "n_ctx": 32}}, r"model.n_ctx=32 \(there 24\), model.norm=layer \(there rms\)"),
        (4, {"data": {"vocab_size": 40}}, "not those that parent knows"),
        (4, {"data": {"corpus": "markov"}}, "the tokens of data.corpus='markov' are not those that parent knows"),
    ],
)
def test_mistakes_leave_nothing_behind(parent, tmp_path, step, changes, words):
    config = replace(parent.config, run=str(tmp_path / "child"))
    config = replace(config, **{part: replace(getattr(config, part), **fields) for part, fields in changes.items()})
    with pytest.raises(ValueError, match=words):
        loop.fork(parent, step, config, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_fork_never_overwrites(parent):
    with pytest.raises(ValueError, match="already holds a run"):
        loop.fork(parent, 4, replace(parent.config, run=str(parent.dir)), quiet=True)


def test_trackers_are_those_of_the_parent_unless_told(parent: Run, tmp_path: Path) -> None:
    other = Run(shutil.copytree(parent.dir, tmp_path / "other"))
    meta = json.loads((other.dir / "run.json").read_text())
    (other.dir / "run.json").write_text(json.dumps({**meta, "track": ["nowhere"]}))
    config = replace(parent.config, run=str(tmp_path / "child"))
    with pytest.raises(ValueError, match="nowhere"):
        loop.fork(other, 8, config, quiet=True)
    assert loop.fork(other, 8, config, quiet=True, track=()).meta["track"] == []
