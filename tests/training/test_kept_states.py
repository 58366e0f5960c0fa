"""Kept states: weights with the optimiser's state, from which any part of a training can be had again to the bit."""

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
