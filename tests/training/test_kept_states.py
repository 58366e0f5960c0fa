"""Kept states: weights with the optimiser's state, from which any part of a training can be had again to the bit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tracer.config import RecordConfig, TrainConfig
from tracer.presets import preset
from tracer.store import BrokenSnapshot, Run, open_run
from tracer.store.check import check
from tracer.training import loop
from tracer.training.probe_recorder import state_steps

TOY = preset("induction").config


def tiny(directory: Path, steps: int = 8, **record: int) -> TrainConfig:
    """The toy with Muon beside AdamW, so that there are two optimisers, and with dropout; every second state kept."""
    kept = RecordConfig(**{"every": 8, "snapshot_every": 4, "state_every": 2, "val_rows": 2, "repeat_rows": 2} | record)
    return replace(
        TOY, run=str(directory), steps=steps, device="cpu", record=kept,
        model=replace(TOY.model, d_model=16, n_ctx=24, dropout=0.1), data=replace(TOY.data, period_max=12),
        optim=replace(TOY.optim, name="muon", batch_size=4),
    )  # fmt: skip


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return loop.train(tiny(tmp_path_factory.mktemp("runs") / "parent"), quiet=True)


@pytest.fixture
def run(parent: Run, tmp_path: Path) -> Run:
    """A copy that a test may change."""
    return open_run(shutil.copytree(parent.dir, tmp_path / "r"))


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_fork_from_a_kept_state_is_the_parent_to_the_bit(parent: Run, run: Run, tmp_path: Path) -> None:
    assert parent.steps == [0, 4, 8] and parent.state_steps == [0, 2, 4, 6, 8] and parent.can("states")
    child = loop.fork(parent, 6, replace(parent.config, run=str(tmp_path / "child")), quiet=True)  # no snapshot of 6
    assert child.meta["parent"]["optimizer"] == "continued" and child.meta["state_steps"] == [6]
    assert equal(child.state(8), parent.state(8))
    shutil.rmtree(run.dir / "states")
    fresh = loop.fork(run, 4, replace(parent.config, run=str(tmp_path / "fresh")), quiet=True)
    assert fresh.meta["parent"]["optimizer"] == "fresh" and not equal(fresh.state(8), parent.state(8))


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


def test_states_can_be_switched_off(tmp_path: Path) -> None:
    none = loop.train(tiny(tmp_path / "none", steps=3, state_every=0), quiet=True)
    assert none.state_steps == [3] and not (none.dir / "states").exists()
    assert none.why_not("states") == "record.state_every=0 and record.state_mb=500 leave no state to keep"


def test_a_damaged_or_lost_state_is_named(run: Run) -> None:
    path = run.dir / "states" / "000004.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    (run.dir / "states" / "000002.safetensors").unlink()
    assert check(run.dir).damaged == {
        "run.json": "it names states that are not there: 2",
        "states/000004.safetensors": "its checksum is not that of its content",
    }
    with pytest.raises(BrokenSnapshot, match=r"000004\.safetensors cannot be read .*; other steps here: 0, 6$"):
        loop.fork(run, 4, quiet=True)


@pytest.mark.parametrize(
    ("mb", "every", "first", "steps"),
    [
        (30.0, 100, 0, [*range(0, 1000, 100)]),  # ten of 3 MB
        (29.9, 100, 0, [0, 200, 400, 600, 800]),
        (3.0, 100, 0, [0]),
        (2.9, 100, 0, []),
        (30.0, 0, 0, []),
        (30.0, 100, 650, [650, 700, 800, 900]),  # a fork
        (9.0, 100, 600, [600, 800]),
        (30.0, 2000, 0, [0]),
    ],
)
def test_states_fit_their_budget(mb: float, every: int, first: int, steps: list[int]) -> None:
    config = replace(TOY, steps=1000, record=RecordConfig(state_every=every, state_mb=mb))
    assert state_steps(config, 10**6, first) == steps
