"""A `tracer.Transformer` in somebody's own loop: its weights are kept, and every page can run it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tracer
from tracer.config import ModelConfig
from tracer.config.fields import to_dict
from tracer.store import BrokenSnapshot, NotARun, Run
from tracer.store.check import check

CONFIG = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=12, d_vocab=20, positions="rotary", mlp_hidden=(24,))


def watched(steps: int = 3, config: ModelConfig = CONFIG, **options: Any) -> tuple[Run, tracer.Transformer]:
    torch.manual_seed(0)
    model = tracer.Transformer(config, seed=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tracer.watch(model, run="own", every=1, **options) as recorder:
        for _ in range(steps):
            ids = torch.randint(20, (8, 12))
            loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    return tracer.open_run("own"), model


def test_its_weights_are_kept_and_run(here: Path) -> None:
    run, model = watched()
    ids = torch.randint(20, (2, 12))
    assert run.steps == [0, 1, 2, 3] and run.can("prompts") and check(run.dir).damaged == {}
    again, first = run.model(), run.model(0)
    assert isinstance(again, tracer.Transformer) and to_dict(again.config) == to_dict(CONFIG)
    with torch.no_grad():
        assert torch.equal(again(ids), model(ids)) and torch.equal(first(ids), tracer.Transformer(CONFIG, seed=4)(ids))
    assert run.can("composition") and run.can("value_norms") and "turned by their distance" in run.why_not("positions")
    assert "somebody else's" in run.why_not("resume") and "author" in run.why_not("recipe")


def test_it_is_ablated_over_training(here: Path) -> None:
    run, _ = watched(config=replace(CONFIG, attn_gate=True))
    swept = tracer.sweep_run(run, modes=("zero",))
    assert swept.sizes["step"] == 4 and bool(swept["effect"].notnull().all())


def test_weights_of_another_shape_are_refused_before_memory_is_taken(here: Path) -> None:
    run, _ = watched(1)
    path = run.dir / "run.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "transformer": {**meta["transformer"], "n_layers": 5}}))
    with pytest.raises(NotARun, match="speaks of 5 layers of 2 heads, and lists layers of .2, 2."):
        tracer.open_run("own").model()
    path.write_text(json.dumps({**meta, "transformer": {**meta["transformer"], "mlp_hidden": [4000]}}))
    with pytest.raises(BrokenSnapshot, match="does not fit its run.json: .* tensors differ"):
        tracer.open_run("own").model()
    path.write_text(json.dumps({**meta, "transformer": {**meta["transformer"], "d_model": -3}}))
    with pytest.raises(NotARun, match="d_model"):
        tracer.open_run("own").model()


def test_none_are_kept_where_none_are_asked_for(here: Path) -> None:
    run, _ = watched(snapshot_mb=0.01)
    assert run.steps == [0]  # the first is, always
