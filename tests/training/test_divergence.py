"""Trainings that diverge: where it began is found, and no resume point holds broken weights."""

from dataclasses import replace
from typing import cast

import pytest
import torch
from torch.nn import functional as F

from tests.trainings import diverging, tiny
from tracer.diagnosis import examine
from tracer.model import Transformer, layers
from tracer.training import loop
from tracer.training.divergence import Watch


def test_where_in_the_step_and_the_last_finite_weights_are_told(tmp_path):
    config = diverging(tmp_path / "r")
    run = loop.train(replace(config, record=replace(config.record, snapshot_every=2)), quiet=True)
    first, told = run.meta["divergence"]["non_finite"], examine(run).findings[0].evidence
    assert f"{first['where']} in L0H0, in the forward pass at step {first['step']}" in told
    kept = max(step for step in {*run.steps, *run.state_steps} if step <= first["step"])
    assert told.endswith(f"the last weights that are kept and were finite are of step {kept:,}") and kept > 0
    assert all(bool(p.isfinite().all()) for p in cast(Transformer, run.model(kept)).parameters())


def test_a_gradient_that_is_not_finite_is_that_of_a_head():
    gradient = torch.zeros(4, 8, 2)
    gradient[3, 0, 0] = float("inf")
    watch = Watch()
    assert not watch.look(7, {"blocks.1.attn.W_Q (gradient)": gradient})
    assert watch.non_finite is not None
    assert str(watch.non_finite) == "step 7: blocks.1.attn.W_Q (gradient) (layer 1, head 3) is not finite"


@pytest.mark.parametrize(
    ("name", "values", "step"),
    [
        ("blocks.0.attn.b_O (weight)", [0.0, 1e-3, 1.0], None),  # a bias starts at 0 and grows, in every healthy run
        ("blocks.0.hook_attn_out", [0.0, 1.0, 50.0], None),
        ("blocks.0.hook_attn_out", [1.0, 50.0, 100.0], None),
        ("blocks.0.hook_attn_out", [1.0, 50.0, 101.0], 2),
        ("blocks.0.hook_attn_out", [1e-9, 9e-5, 2e-4], 2),  # less than 1e-6 counts as that
        ("blocks.0.attn.W_V (gradient)", [0.1, 11.0, 50.0], 1),
    ],
)
def test_what_counts_as_exploding(name, values, step):
    watch = Watch()
    for i, value in enumerate(values):
        assert watch.look(i, {name: torch.full((4, 2), -value)})  # of both signs, the size counts
    assert (watch.exploding.step if watch.exploding else None) == step


def test_of_gradients_that_break_together_the_last_layer_is_named(tmp_path, monkeypatch):
    """They are computed from the end of the model to its beginning."""
    run = loop.train(tiny(tmp_path / "r", steps=1), quiet=True)
    job = loop.prepare(run.config)

    def breaking(job, step, alone):
        assert alone
        for parameter in job.raw.parameters():
            parameter.grad = torch.full_like(parameter, float("inf") if step else 1.0)
        return torch.zeros(())

    monkeypatch.setattr(loop, "forward_backward", breaking)
    found = loop._watched_again(job, run.dir, 0, 2, []).non_finite
    assert found is not None and (found.step, found.where) == (1, "unembed.W_U (gradient)")


def test_a_resume_point_never_holds_broken_weights(tmp_path, monkeypatch):
    """A loss that is finite, and an update that ruins the weights: the replay must start before it."""
    update = loop.update

    def ruin(job, step):
        result = update(job, step)
        if step == 3:
            with torch.no_grad():
                job.raw.blocks[1].attn.W_V[2, 0, 0] = float("nan")
        return result

    monkeypatch.setattr(loop, "update", ruin)
    monkeypatch.setattr("tracer.training.session.CHECKPOINT_SECONDS", 0.0)
    run = loop.train(tiny(tmp_path / "r", steps=8), quiet=True)
    assert run.status == "diverged" and run.resume_step() in range(4)
    found = run.meta["divergence"]
    assert found["step"] == 4 and found["exploding"] is None
    where = {"step": 3, "where": "blocks.1.attn.W_V (weight)", "layer": 1, "head": 2, "value": None}
    assert found["non_finite"] == where
    told = examine(run).findings[0].evidence
    assert "blocks.1.attn.W_V (weight) in L1H2, in the optimizer's step at step 3" in told


def test_what_only_the_fused_kernel_overflows_at_is_found_in_it(tmp_path, monkeypatch):
    """Nobody looks at scores while it trains: the fused kernel runs, whose fault a replay that looks does not meet."""
    steps, attend, forward_backward = [0], F.scaled_dot_product_attention, loop.forward_backward

    def overflowing(q, k, v, **options):
        return attend(q, k, v * (float("inf") if steps[-1] >= 3 else 1.0), **options)

    def at_step(job, step, **options):
        steps.append(step)
        return forward_backward(job, step, **options)

    monkeypatch.setattr(layers.F, "scaled_dot_product_attention", overflowing)
    monkeypatch.setattr(loop, "forward_backward", at_step)
    run = loop.train(tiny(tmp_path / "r", steps=8), quiet=True)
    found = run.meta["divergence"]
    assert (found["step"], found["fused"], found["non_finite"]["step"]) == (3, True, 3)
    assert found["non_finite"]["where"] == "blocks.0.attn.hook_z"
    assert "only in the fused attention kernel" in next(iter(examine(run).findings)).evidence
