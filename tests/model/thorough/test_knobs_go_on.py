"""A run of each knob of attention goes on from a kept state as the run that never stopped."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainings import tiny
from tracer.training import loop

KNOBS: dict[str, dict[str, Any]] = {
    "output gate": {"attn_gate": True}, "soft cap": {"attn_softcap": 2.0}, "learned sink": {"sink": "learned"},
    "sigmoid": {"attention": "sigmoid", "attn_scale": "none"}, "smeared keys": {"smear": "keys"},
    "q and k normed": {"qk_norm": True},
}  # fmt: skip
ITS_OWN = {"output gate": "W_gate", "learned sink": "sink", "smeared keys": "a_smear", "q and k normed": "q_norm"}


@pytest.mark.parametrize("knob", KNOBS)
def test_a_fork_from_a_kept_state_is_the_run_to_the_bit(tmp_path: Path, knob: str) -> None:
    config = tiny(tmp_path / "r", steps=8)
    record = replace(config.record, every=4, snapshot_every=4, state_every=4)
    config = replace(config, model=replace(config.model, **KNOBS[knob]), record=record)
    run = loop.train(config, quiet=True)
    again = loop.fork(run, 4, replace(config, run=str(tmp_path / "again")), quiet=True)
    models: list[Any] = [run.model(0), run.model(8), again.model(8)]
    first, ours, theirs = (model.state_dict() for model in models)
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        assert torch.equal(weight, theirs[name]), name
    own = [name for name in ours if ITS_OWN.get(knob, "W_Q") in name]
    assert own and all(not torch.equal(ours[name], first[name]) for name in own), "what is of the knob was trained"
